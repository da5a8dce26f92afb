"""The commands that publish a report, and answer the person who asks about her own row."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from expost.cli import options
from expost.cli.open_page import check_page, page_folder, page_lines, show
from expost.cli.options import MODEL, QUESTION
from expost.cli.progress import progress

__all__ = ["lookup_command", "publish_command"]


def publish_command(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="The table that the model was made from, or its database."
        ),
    ] = None,
    *,
    model: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The model.json to report on; no second one is drawn.",
            rich_help_panel=MODEL,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that the model predicts.",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    query: options.Query = None,
    id_column: options.IdColumn = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="data-independent (spends nothing) or data-dependent.",
            autocompletion=options.completes(options.KINDS),
            rich_help_panel=QUESTION,
        ),
    ] = "data-independent",
    epsilon_gradient: Annotated[
        float | None,
        typer.Option(help="What a noisy gradient may spend.", rich_help_panel=QUESTION),
    ] = None,
    epsilon_hessian: Annotated[
        float | None,
        typer.Option(help="What a noisy Hessian may spend.", rich_help_panel=QUESTION),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="The delta of each of the two (default: that of the model).",
            rich_help_panel=QUESTION,
        ),
    ] = None,
    failure_probability: Annotated[
        float,
        typer.Option(
            help="How probable it may be that a part of the bound fails.", rich_help_panel=QUESTION
        ),
    ] = 1e-6,
    out: options.Out,
    ledger: options.Ledger = None,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
    engine: options.Engine = None,
    resume: options.Resume = False,
    memory: options.Memory = None,
    log_json: options.LogJson = False,
) -> None:
    """Publish a report with which anybody can bound how much a released model gives her away.

    DIR/report.json may be published: it holds the model, public constants and, if it is
    data-dependent, a noisy gradient and Hessian; no row and no exact loss. report.html tells
    people what is in it and how to ask about themselves. With the table at hand
    comparison.CURATOR-ONLY.json and .parquet set its bounds beside the exact losses.

    A data-dependent report needs a model by objective perturbation with enough regularization, and
    spends --epsilon-gradient and --epsilon-hessian; each further one spends them again. The ledger
    beside the model lists it.

    Examples:

    `expost publish --model report/model.json --out published`

    `expost publish people.csv --target income --model report/model.json --out published`

    `expost publish people.csv --target income --model report/model.json --kind data-dependent
    --epsilon-gradient 0.2 --epsilon-hessian 0.1 --out published`
    """
    from expost.jobs import publish

    job = publish.PublishJob(
        model=model,
        out=out,
        source=options.rows_of(data, query, id_column),
        target=target,
        id_column=id_column,
        kind=kind,
        epsilon_gradient=epsilon_gradient,
        epsilon_hessian=epsilon_hessian,
        delta=delta,
        failure_probability=failure_probability,
        ledger=ledger,
        force=force,
        streaming=options.streaming(engine, resume, memory),
    )
    with progress(publish.PHASES, quiet=as_json, log=log_json) as shown:
        outcome = publish.run(job, shown)
    if as_json:
        content: dict[str, Any] = {
            "files": {name: str(path) for name, path in outcome.files.items()},
            "report": {"kind": outcome.report.kind, "fails_with": outcome.report.fails_with},
            "forecast": outcome.report.release.mechanism.forecast.fields(),
            "notices": [*outcome.report.statements, *outcome.notices],
        }
        if outcome.comparison is not None:
            content["comparison"] = outcome.comparison.summary()
        print(json.dumps(content, indent=1, allow_nan=False))
    else:
        print("\n".join(publish.outcome_lines(outcome)))
    if open_it:
        show(outcome.files["page"])


def lookup_command(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="A published report.json.")],
    *,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMN=VALUE",
            help="A value of your row as it stands on a form; repeat for each column.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", help="What the model is to predict of you (default: show every label)."
        ),
    ] = None,
    out: options.PageOut = None,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
) -> None:
    """Say how much a published model can give away about one person, at most.

    It reads report.json and what you type, nothing else, and sends nothing anywhere. It writes
    nothing unless you ask for a page, which you alone can read and which holds none of your values.

    Examples:

    `expost lookup report.json --set age=39 --set education-num=13 --label '>50K'`

    `expost lookup report.json --set age=39 --set education-num=13 --open`
    """
    from expost.jobs import publish
    from expost.jobs.workspace import held

    check_page(out, force=force)
    found, answers = publish.look_up(report, values or [], label)
    files = {}
    if out is not None or open_it:
        with held(page_folder(out), force=force, inputs=[report], page=True) as workspace:
            files = publish.store_answers(found, answers, report, workspace)
    if as_json:
        told = {"files": {name: str(path) for name, path in files.items()}} if files else {}
        content = {**told, **publish.answers_json(found, answers)}
        print(json.dumps(content, indent=1, allow_nan=False))
    else:
        print("\n".join([*publish.answer_lines(found, answers), *page_lines(files)]))
    if open_it:
        show(files["report"])
