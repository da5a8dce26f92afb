"""The commands that release a model and say how much it gives each row away."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expost.cli import options
from expost.cli.lines import choice_lines, end_lines, print_json
from expost.cli.open_page import show
from expost.cli.options import MODEL
from expost.cli.progress import progress

if TYPE_CHECKING:
    from expost.jobs import profile as profile_job

__all__ = ["demo_command", "profile_command"]


def profile_command(
    data: options.Data,
    *,
    target: options.Target,
    query: options.Query = None,
    id_column: options.IdColumn = None,
    drop: options.Drop = None,
    missing: options.Missing = None,
    encoding: options.Encoding = None,
    data_norm: options.DataNorm = None,
    classes: options.Classes = None,
    label_range: options.LabelRange = None,
    person_column: options.PersonColumn = None,
    max_rows_per_person: options.MaxRowsPerPerson = None,
    cap_rows: options.CapRows = False,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The privacy budget of this one release (default: 1).", rich_help_panel=MODEL
        ),
    ] = None,
    mechanism: options.Mechanism = None,
    noise: options.Noise = None,
    delta: options.Delta = None,
    loss: options.Loss = None,
    regularization: options.Regularization = None,
    margin: options.Margin = None,
    seed: Annotated[
        int | None,
        typer.Option(help="For simulation: not a private release.", rich_help_panel=MODEL),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Profile this model.json; no second one is drawn.",
            rich_help_panel=MODEL,
        ),
    ] = None,
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
    """Release one private linear model of a table, and say how much it gives each row away.

    The model is drawn once. It is in DIR/model.json before anything is computed from it; then
    come, for the curator only, profile.CURATOR-ONLY.parquet and .json (a line for each row) and
    report.CURATOR-ONLY.html. Should the rest fail, profile that model with --model DIR/model.json.
    The ledger lists every release of the data: a model that nobody liked was seen, and is spent.

    Examples:

    `expost profile people.csv --target income --id number --out report`

    `expost profile 'y*.parquet' --target wage --loss squared --label-range 0,9e3 --out report`

    `expost profile people.csv --target income --model report/model.json --out again`

    `expost profile visits.csv --target ill --person patient --out report`

    With --person all rows of a person are taken out at once, and every result has a line a person.
    With --max-rows-per-person epsilon and delta hold for persons; the number must not be from the
    data.

    What is not given (--encoding, --classes, --label-range) is read from the data, which is not
    private; the results say which.
    """
    from expost.jobs.profile import ProfileJob

    source = options.rows_of(data, query, id_column)
    if person_column is not None and source is not data:
        id_column = None  # it orders the rows of a database, and persons are the keys of results
    _profile(
        ProfileJob(
            source=source,
            target=target,
            out=out,
            name=options.called(source),
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            noise=noise,
            loss=loss,
            regularization=options.number_or_auto(regularization),
            margin=options.number_or_auto(margin, "--margin", "≥ 0"),
            data_norm=data_norm,
            label_range=options.label_range(label_range),
            classes=options.labels(classes),
            id_column=id_column,
            person_column=person_column,
            max_rows_per_person=max_rows_per_person,
            cap_rows=cap_rows,
            drop=tuple(drop) if drop else None,
            missing=tuple(missing) if missing else None,
            encoding=encoding,
            model=model,
            seed=seed,
            ledger=ledger,
            force=force,
            streaming=options.streaming(engine, resume, memory),
        ),
        as_json=as_json,
        log_json=log_json,
        open_it=open_it,
    )


def demo_command(
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="The privacy budget of this one release (default: 1).", rich_help_panel=MODEL
        ),
    ] = None,
    out: options.Out = Path("demo-report"),
    ledger: options.Ledger = None,
    force: options.Force = False,
    open_it: options.Open = False,
    as_json: options.AsJson = False,
    log_json: options.LogJson = False,
) -> None:
    """Do the main job on 569 patients: scikit-learn's breast-cancer data, keyed by patient.

    It releases one model that tells benign from malignant, prints how exposed the patients are,
    how accurate the model is beside the base rate and beside epsilon = ∞, and where the report is.
    """
    from sklearn.datasets import load_breast_cancer

    from expost.jobs.profile import ProfileJob

    patients = load_breast_cancer()
    columns: dict[str, Any] = {
        str(name): patients.data[:, place] for place, name in enumerate(patients.feature_names)
    }
    columns["diagnosis"] = [str(patients.target_names[label]) for label in patients.target]
    columns["patient"] = [f"patient {number}" for number in range(1, len(patients.target) + 1)]
    _profile(
        ProfileJob(
            source=columns,
            target="diagnosis",
            out=out,
            name="breast cancer, 569 patients",
            epsilon=epsilon,
            id_column="patient",
            classes=("benign", "malignant"),
            ledger=ledger,
            force=force,
        ),
        as_json=as_json,
        log_json=log_json,
        open_it=open_it,
    )


def _profile(
    job: "profile_job.ProfileJob", *, as_json: bool, log_json: bool, open_it: bool
) -> None:
    from expost.jobs import profile

    with progress(profile.PHASES, quiet=as_json, log=log_json) as shown:
        outcome = profile.run(job, shown)
    if as_json:
        print_json(outcome.summary, outcome.files)
    else:
        print("\n".join(_profile_lines(outcome)))
    if open_it:
        show(outcome.files["report"])


def _profile_lines(outcome: "profile_job.Outcome") -> list[str]:
    """What a person reads at the end of a run."""
    summary = outcome.summary
    lines = [*outcome.profile.lines(), *choice_lines(summary)]
    score = None if summary.profile is None else summary.profile.accuracy
    if score is not None and score.noiseless is not None:
        form = ".1%" if score.measure == "accuracy" else ".3f"
        lines += [
            "",
            f"{score.measure.capitalize()} on {score.rows}: {score.released:{form}} released,"
            f" {score.base_rate:{form}} by the base rate alone,"
            f" {score.noiseless:{form}} at epsilon = ∞",
        ]
        losses = score.log_loss
        if losses is not None:
            lines.append(
                f"Log loss: {losses.released:.3f} released, {losses.base_rate:.3f} by the base rate"
                f" alone, {losses.noiseless:.3f} at epsilon = ∞"
            )
    return [*lines, *end_lines(summary, outcome.files)]
