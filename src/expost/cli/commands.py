"""The commands: each takes a request, runs its job and prints the result.

The options of a command are the fields of its request (:mod:`expost.jobs.requests`), and its help
is the docstring of its function. Jobs are imported when a command runs, so that ``--help`` and
shell completion are fast.
"""

import json
from typing import TYPE_CHECKING

import typer

from expost.cli.arrow import start_arrow
from expost.cli.lines import finished_lines, page_json, page_lines, print_json
from expost.cli.open_page import show
from expost.cli.progress import progress

if TYPE_CHECKING:
    from expost.jobs.requests import (
        AuditRequest,
        CardRequest,
        CheckRequest,
        ConformRequest,
        DemoRequest,
        DoctorRequest,
        DossierRequest,
        EncodingRequest,
        EpsilonRequest,
        ForgetRequest,
        LedgerRequest,
        LookupRequest,
        ProfileRequest,
        PublishRequest,
        ReportRequest,
        RiskRequest,
        VerifyRequest,
    )

__all__ = [
    "audit",
    "card",
    "check",
    "conform",
    "demo",
    "doctor",
    "dossier",
    "encoding",
    "epsilon",
    "forget",
    "ledger",
    "lookup",
    "profile",
    "publish",
    "report",
    "risk",
    "verify",
]

# The exit code where no epsilon is recommended; docs/cli.md has all of them.
_NO_RECOMMENDATION = 3
# The exit code where a file differs from its manifest.
_DIFFERS = 3


def doctor(request: "DoctorRequest") -> None:
    """Report what is installed, which extras are missing, and what that prevents.

    Prints a line for each package, with its version and the versions that are supported, and for
    each feature of the machine that expost uses: ok, missing, too old or broken (installed, but
    cannot be imported). The exit code is 1 if anything required is not ok.

    **Examples**

    `expost doctor`

    `expost doctor --json`
    """
    from expost.jobs.doctor import checkup

    result = checkup()
    print(json.dumps(result.to_json(), indent=1) if request.as_json else "\n".join(result.lines()))
    if not result.is_well:
        raise typer.Exit(1)


def encoding(request: "EncodingRequest") -> None:
    """Write a file of public constants to fill in, or report what is missing in one.

    Means, scales and levels that are read from the data are not covered by ε. With --template the
    columns and kinds of a table are written to a file: fill in the range of each number, the levels
    of each string and the classes of the target, from a code book or a form, and pass the file to
    expost profile --encoding. With --private-encoding ranges are enough. Constants that are copied
    from these rows into the file remain read from the data, whatever the file says.

    **Examples**

    `expost encoding people.csv --template --target income`

    `expost encoding people.csv --encoding people.encoding.json --target income`
    """
    start_arrow()
    from expost.jobs import encoding as job

    outcome = job.run(request)
    lines = [json.dumps(outcome.to_json(), indent=1)] if request.as_json else outcome.lines()
    print("\n".join(lines))


def epsilon(request: "EpsilonRequest") -> None:
    """Recommend an ε for a private linear model of a table; nothing is released.

    The first sentence is the result: the smallest ε that is enough, the largest that the limit
    allows, none, or useless. Models are compared on held-out rows. The limit is on the posterior
    probability that a row was in the training data. The last lines show the command that releases
    such a model. Exit code 3: no ε is recommended.

    The results are for the curator only: DIR/report.CURATOR-ONLY.html is the page to read,
    epsilon.CURATOR-ONLY.json and .parquet hold the figures. Looking at the data to choose ε is not
    private; the page explains what that means.

    **Examples**

    `expost epsilon people.csv --target income --id number`

    `expost epsilon people.csv --target income --max-posterior 0.6 --out choice`
    """
    start_arrow()
    from expost.jobs import epsilon as job

    with progress(job.PHASES, quiet=request.prints_json, log=request.log_json) as listener:
        outcome = job.run(request, listener)
    if request.prints_json:
        figures = {"command": outcome.command, **page_json(outcome.page)}
        print_json(request, outcome.files, outcome.choice.scalars(), lambda: figures)
    else:
        print("\n".join(finished_lines(outcome.page, outcome.files)))
    if request.open_page:
        show(outcome.files["report"])
    if outcome.choice.recommended is None:
        raise typer.Exit(_NO_RECOMMENDATION)


def profile(request: "ProfileRequest") -> None:
    """Release one private linear model of a table, and report the privacy loss of each row.

    The model is drawn once and stored in DIR/model.json first. The other results are for the
    curator only: report.CURATOR-ONLY.html, and profile.CURATOR-ONLY.parquet and .json with a line
    for each row. The ledger records every release: a model you discard still counts.

    **Examples**

    `expost profile people.csv --target income --id number`

    `expost profile people.csv --target income --model report/model.json`

    `expost profile visits.csv --target ill --person patient --out report`

    With --person all rows of a person are removed at once. With --max-rows-per-person ε and δ hold
    for persons; the number must not come from the data. Constants that are neither given nor
    private are read from the data, which ε does not cover; the results list them.
    """
    start_arrow()
    from expost.jobs import profile as job

    with progress(job.PHASES, quiet=request.prints_json, log=request.log_json) as listener:
        outcome = job.run(request, listener)
    if request.prints_json:
        public = outcome.release.scalars()
        print_json(request, outcome.files, public, lambda: page_json(outcome.page))
    else:
        print("\n".join(finished_lines(outcome.page, outcome.files)))
    if request.open_page:
        show(outcome.files["report"])


def demo(request: "DemoRequest") -> None:
    """Profile a model of 569 patients: scikit-learn's breast-cancer data, keyed by patient.

    Releases one model that separates benign from malignant. Prints how exposed the patients are,
    the accuracy of the model next to the base rate and to ε = ∞, and the path of the report.
    """
    from expost.jobs.demo import demo_request

    profile(demo_request(request))


def publish(request: "PublishRequest") -> None:
    """Publish a report in which people can bound their own privacy loss in a released model.

    DIR/report.json may be published: it holds the model, public constants and, if it is
    data-dependent, a noisy gradient and Hessian; no row and no exact loss. report.html has a form
    in which people type their own values; it computes their bounds in the browser and sends
    nothing. If DATA is given, comparison.CURATOR-ONLY.json and .parquet compare the bounds with
    the exact losses.

    A model with constants that were read from the data (means, scales, levels, labels) gives
    report.CURATOR-ONLY.json and its page instead. They name the constants, which ε does not
    cover, and need a review before they are shared.

    A data-dependent report needs a model by objective perturbation with enough regularization. It
    spends --epsilon-gradient and --epsilon-hessian, as does each further report. It is recorded
    in the ledger.

    **Examples**

    `expost publish --model report/model.json --out published`

    `expost publish people.csv --target income --model report/model.json --out published`

    `expost publish people.csv --target income --model report/model.json --kind data-dependent
    --epsilon-gradient 0.2 --epsilon-hessian 0.1 --out published`
    """
    start_arrow()
    from expost.jobs import publish as job

    with progress(job.PHASES, quiet=request.prints_json, log=request.log_json) as listener:
        outcome = job.run(request, listener)
    if request.prints_json:
        print_json(request, outcome.files, outcome.scalars(), outcome.to_json)
    else:
        print("\n".join(job.outcome_lines(outcome)))
    if request.open_page:
        show(outcome.files["page"])


def lookup(request: "LookupRequest") -> None:
    """Report the largest privacy loss that a published model can have for one person.

    Reads report.json and the values you type. Nothing is sent, and nothing is written unless
    you request a page, which only you can read and which holds none of your values. Without
    --label the bounds of all labels are reported, which hold together.

    **Examples**

    `expost lookup report.json --set age=39 --set education-num=13 --label '>50K'`

    `expost lookup report.json --set age=39 --set education-num=13 --open`
    """
    from expost.jobs import publish as job

    report, answers, files = job.run_lookup(request)
    if request.prints_json:
        # These figures belong to the person who runs the lookup.
        print_json(request, files, job.answers_json(report, answers), dict)
    else:
        print("\n".join([*job.answer_lines(report, answers), *page_lines(files)]))
    if request.open_page:
        show(files["report"])


def forget(request: "ForgetRequest") -> None:
    """Erase persons from a released model: it then has the law of a release without their rows.

    DIR/model.json is the new model. certificate.html is a page that a person can be sent, and
    certificate.json the same for programs. erasure.CURATOR-ONLY.json holds what only the curator
    may know, with the earlier results that still hold the rows and should be deleted. The ledger
    lists the request before anything is drawn, and refuses it a second time.

    By default the new model is drawn independently of the present one, which is exact for any
    request. With --requests-independent the present model is kept if possible: declare it only if
    no request was made after looking at a model, a report or a lookup.

    Copies of the old model are not called back. The model may stay the same, because the
    statement is about its law. Delete the rows from the table yourself.

    **Examples**

    `expost forget people.csv --target income --model report/model.json --id number --remove 17
    --out erased`

    `expost forget people.csv --target income --model report/model.json --id number --remove
    requests.txt --requests-independent --out erased`
    """
    start_arrow()
    from expost.jobs import forget as job

    with progress(job.PHASES, quiet=request.prints_json, log=request.log_json) as listener:
        outcome = job.run(request, listener)
    if request.prints_json:
        print_json(request, outcome.files, outcome.scalars(), outcome.to_json)
    else:
        print("\n".join(outcome.lines()))
    if request.open_page:
        show(outcome.files["page"])


def card(request: "CardRequest") -> None:
    """Write a model card and a registry entry from released results.

    DIR/card.md is the README.md of a model repository on the Hugging Face Hub: Markdown with YAML
    metadata. DIR/deployment.yaml is a draft of an entry of the Differential Privacy Deployments
    Registry. Both hold public figures alone: results that are not public are left out, and what
    expost does not know is marked, not filled in. One model.json or report.json is needed.

    **Examples**

    `expost card report/model.json --license mit --name org/income --out card`

    `expost card published --baseline 1/1000 --out card`
    """
    from expost.jobs import card as job

    outcome = job.run(request)
    if request.as_json:
        print_json(request, outcome.files, outcome.figures, dict)
    else:
        print("\n".join([*outcome.lines(), *page_lines(outcome.files)]))


def risk(request: "RiskRequest") -> None:
    """Explain what ε means for a person in the data, or find the ε that meets a goal.

    Give one guarantee or one goal. The answer has four bounds for an attacker who knows every
    other row: the posterior, the membership advantage, the true-positive rate and 1 in k. No data
    is read. The answer is public unless the MODEL needs review. Of a profile it is curator-only.

    With --rows and --features it also forecasts the utility of a linear model, and how many
    rows a better one needs. The default of δ is then that of a release.

    **Examples**

    `expost risk --epsilon 1 --delta 1e-5`

    `expost risk --epsilon 1 --rows 1000 --features 60`

    `expost risk --epsilon 1 --baseline 1/1000`

    `expost risk --max-posterior 0.9`

    `expost risk --noise-multiplier 1.1 --sampling-rate 0.01 --steps 10000 --delta 1e-5`

    `expost risk --one-in 100 --prior 0.001 --delta 1e-6 --plot risk.png`

    `expost risk report/model.json --open`

    `expost risk report --baseline 1/1000`
    """
    from expost.jobs import risk as job

    answer, files = job.run(request)
    if request.prints_json:
        public = answer.fields() if answer.audience.value == "public" else {}
        print_json(request, files, public, answer.fields)
    else:
        print("\n".join([str(answer), *page_lines(files)]))
    if request.open_page:
        show(files["report"])


def audit(request: "AuditRequest") -> None:
    """Attack a model: report which rows can be recognised as training data, and how reliably.

    Membership inference by thresholds, shadow models, LiRA and RMIA, on a released model.json, a
    saved model, any scikit-learn class, or answers computed elsewhere. This is an attack, not a
    guarantee: other attacks may find what these miss.

    The results are for the curator only: DIR/report.CURATOR-ONLY.html is the page to read (.md the
    same as text), roc and exposure its figures, audit.CURATOR-ONLY.json and .parquet hold a line
    for each row, figures.CURATOR-ONLY.json the figures without rows, for a review.

    **Examples**

    `expost audit people.csv --target income --estimator sklearn.tree.DecisionTreeClassifier --out
    audit`

    `expost audit people.csv --target income --model forest.onnx --holdout others.csv --out audit`

    `expost audit --arrays losses.npz --out audit`
    """
    from expost.jobs import audit as job

    with progress(job.phases(request), quiet=request.prints_json, log=request.log_json) as listener:
        outcome = job.run(request, listener)
    if request.prints_json:
        public = outcome.audit.scalars()
        print_json(request, outcome.files, public, lambda: page_json(outcome.page))
    else:
        print("\n".join(finished_lines(outcome.page, outcome.files)))
    if request.open_page:
        show(outcome.files["report"])


def report(request: "ReportRequest") -> None:
    """Show the results of other commands on one page; nothing is computed again.

    Every command that computes writes its figures to summary.CURATOR-ONLY.json, or to summary.json
    if all of them are public. They are combined on one page, DIR/report.CURATOR-ONLY.html, with
    the same as .md, and a summary.CURATOR-ONLY.json of its own: a profile, a choice of ε, a
    published report, an audit and a guarantee, one of each kind and all of one table.

    With --public only what is public is shown, and the files are report.html, report.md and
    summary.json, which may be published. It is refused if nothing is public.

    **Examples**

    `expost report choice report audit --out page --open`

    `expost report report published --public --out site`
    """
    from expost.jobs import report as job

    outcome = job.run(request)
    if request.prints_json:
        figures = page_json(outcome.page)
        public = figures if outcome.page.audience.value == "public" else {}
        print_json(request, outcome.files, public, lambda: figures)
    else:
        print("\n".join(outcome.lines()))
    if request.open_page:
        show(outcome.files["report"])


def ledger(request: "LedgerRequest") -> None:
    """List every release of a data set, and compose their privacy losses.

    `expost profile`, `demo`, `publish` and `forget` record what they release in a ledger. Record a
    model that was made elsewhere with --add, which starts the ledger if there is none.

    ε is composed in three ways: by addition, by Rényi divergences and from the whole distribution
    of the loss. Each bound holds; the last is the smallest.

    **Examples**

    `expost ledger report`

    `expost ledger report --open`

    `expost ledger people.CURATOR-ONLY.json --add mine/model.json --delta 1e-6`
    """
    from expost.jobs import releases as job

    listing, files = job.run(request)
    if request.prints_json:
        print_json(request, files, listing.scalars(), listing.to_json)
    else:
        print("\n".join([str(listing), *page_lines(files)]))
    if request.open_page:
        show(files["report"])


def check(request: "CheckRequest") -> None:
    """Compare results with the limits of a policy: satisfied, violated or not answerable.

    The limits are in policy.toml (docs/cli.md has the schema), or in --fail-on. A limit that no
    given result answers is never satisfied. Exit codes: 0 all limits are satisfied, 3 one is
    violated, 4 none is violated but one is not answerable, 2 a mistake.

    What is printed and written holds verdicts and limits, and measured values only where they are
    public (ε, δ, the audience, the age). All results must be of one model.

    **Examples**

    `expost check report audit --policy policy.toml --junit expost.xml`

    `expost check report/model.json --fail-on 'epsilon>1' --fail-on 'delta>1e-5'`
    """
    from expost.jobs import check as job

    outcome, files = job.run(request)
    if request.as_json:
        figures = outcome.to_dict("curator-only" if request.curator else "public")
        print_json(request, files, figures, dict)
    else:
        print("\n".join([job.lines(outcome, curator=request.curator), *page_lines(files)]))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def conform(request: "ConformRequest") -> None:
    """Check a private training step against its claims: clipping, noise, divisor, sampling.

    Runs TRAINER, module:function of the current folder, on synthetic rows whose gradients are
    known, and compares what it publishes with the claims. Code of the module is executed; none of
    your data is read. TRAINER is a training loop that yields after each step (docs/dp-sgd.md).

    Prints a verdict on each claim, with its evidence. Exit code 3: a claim is violated. A trainer
    that keeps its claims is reported with a probability of at most --false-alarm. The result is
    public.

    **Examples**

    `expost conform steps:trainer --clip 1 --noise-multiplier 1.1 --sampling-rate 0.25`

    `expost conform steps:trainer --clip 1 --noise-multiplier 1.1 --sampling-rate 0.25 --n-public
    --not-finite absent --out conformance`
    """
    from expost.jobs import conform as job

    outcome, files = job.run(request)
    if request.as_json:
        print_json(request, files, outcome.to_dict(), dict)
    else:
        print("\n".join([str(outcome), *page_lines(files)]))
    if request.open_page:
        show(files["report"])
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def dossier(request: "DossierRequest") -> None:
    """Answer what authorities and standards ask of a model, item by item, from its results.

    Each item has its question, the figure, a status and its source. Proved: by a guarantee or a
    certified bound. Tested: by attacks that were run. Not done: with the command that would do it.
    What is not done comes first. Nothing is computed from rows, and no legal assessment is made.

    DIR/dossier.html is the page to read and print, dossier.md and dossier.json the same. Public
    results are copied next to it, and manifest.json lists every file with its SHA-256, which
    `expost verify DIR` compares. With --audience curator-only the dossier also has the figures of
    single rows and of attacks, and the files are named CURATOR-ONLY.

    **Examples**

    `expost dossier report published audit --context public-model --out dossier`

    `expost dossier report audit people.ledger.CURATOR-ONLY.json --context internal --audience
    curator-only --out dossier`
    """
    from expost.jobs import dossier as job

    outcome, files = job.run(request)
    if request.prints_json:
        print_json(request, files, outcome.scalars(), outcome.fields)
    else:
        print("\n".join([str(outcome), *page_lines(files)]))
    if request.open_page:
        show(files["report"])


def verify(request: "VerifyRequest") -> None:
    """Compare the files of a folder with the checksums in its manifest.

    Prints a line for each file: ok, changed, missing or additional (not in the manifest). Results
    are compared where salts.CURATOR-ONLY.json is in the folder, and are not checked elsewhere.
    Exit code 3: a file is not ok. A manifest is no signature: keep its own checksum elsewhere.

    **Examples**

    `expost verify dossier`

    `expost verify dossier archive/report archive/audit`
    """
    from expost.jobs import check as job

    outcome = job.verified(request)
    if request.as_json:
        statuses = {file.name: file.status for file in outcome.files}
        print_json(request, {"manifest": outcome.manifest}, {"status": statuses}, dict)
    else:
        print("\n".join(outcome.lines()))
    if not outcome.holds:
        raise typer.Exit(_DIFFERS)
