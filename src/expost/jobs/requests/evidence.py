"""The requests that explain, compare and document results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from expost.jobs.options import (
    CRITERIA,
    FORECAST,
    GOAL,
    GUARANTEE,
    RESULTS,
    Option,
    read_id,
    read_model_name,
)
from expost.jobs.requests.base import (
    BASELINE,
    RELATIONS,
    AnswerRequest,
    Baseline,
    CuratorJson,
    FolderRequest,
    Request,
)

__all__ = [
    "DEPLOYMENTS",
    "READERS",
    "CardRequest",
    "CheckRequest",
    "DoctorRequest",
    "DossierRequest",
    "ReportRequest",
    "RiskRequest",
    "VerifyRequest",
]

DEPLOYMENTS = ("public-model", "api", "internal")
READERS = ("public", "curator-only")


@dataclass(frozen=True, kw_only=True)
class RiskRequest(AnswerRequest):
    """Options of ``expost risk``."""

    curator_json: CuratorJson = False
    model: Annotated[
        Path | None,
        Option(
            "model.json whose guarantee is explained, or the folder or file of a profile.",
            metavar="MODEL",
        ),
    ] = None
    epsilon: Annotated[float | None, Option("Any mechanism with this ε.", GUARANTEE)] = None
    delta: Annotated[
        float | None,
        Option(
            "δ of ε, or the δ at which the ε of noise is reported.",
            GUARANTEE,
            default="0, or with --rows that of a release",
        ),
    ] = None
    mu: Annotated[
        float | None, Option("Gaussian noise with this sensitivity / sigma.", GUARANTEE)
    ] = None
    noise_multiplier: Annotated[
        float | None, Option("DP-SGD with this noise multiplier.", GUARANTEE)
    ] = None
    sampling_rate: Annotated[
        float | None, Option("DP-SGD: share of rows in a batch.", GUARANTEE, default="1")
    ] = None
    steps: Annotated[int | None, Option("DP-SGD: number of steps.", GUARANTEE, default="1")] = None
    relation: Annotated[
        str | None,
        Option(
            "DP-SGD: whether a row is removed or added (remove), or replaced (replace).",
            GUARANTEE,
            metavar="NAME",
            default="remove",
            choices=RELATIONS,
        ),
    ] = None
    releases: Annotated[int, Option("Number of releases, each with that guarantee.", GUARANTEE)] = 1
    max_posterior: Annotated[
        float | None, Option("Largest posterior probability of an attacker, from 0 to 1.", GOAL)
    ] = None
    advantage: Annotated[
        float | None, Option("Largest membership advantage, from 0 to 1.", GOAL)
    ] = None
    true_positive_rate: Annotated[
        float | None, Option("Largest true-positive rate at --fpr.", GOAL, flag="--tpr")
    ] = None
    one_in: Annotated[float | None, Option("A posterior of at most 1 in this number.", GOAL)] = None
    rows: Annotated[
        int | None, Option("Forecast a model of this many rows (with --features).", FORECAST)
    ] = None
    features: Annotated[
        int | None,
        Option("Number of features of that model; a column of K levels counts K times.", FORECAST),
    ] = None
    prior: Annotated[float, Option("Prior probability of the attacker, from 0 to 1.", CRITERIA)] = (
        0.5
    )
    false_positive_rate: Annotated[
        float, Option("False-positive rate of the attack.", CRITERIA, flag="--fpr")
    ] = 0.01
    exceeded: Annotated[
        float | None,
        Option(
            "Probability with which the posterior may exceed its bound.",
            CRITERIA,
            default="δ if the noise is known, 10 δ for any mechanism",
        ),
    ] = None
    baseline: Baseline = None
    plot: Annotated[
        Path | None,
        Option(
            "Draw posterior and advantage over ε, with this guarantee.", RESULTS, metavar="FILE.png"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReportRequest(FolderRequest):
    """Options of ``expost report``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("Folders that expost commands wrote, or summaries in them.", metavar="PATH"),
    ]
    public: Annotated[bool, Option("Show only what is public.", CRITERIA)] = False


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Request):
    """Options of ``expost check``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("Folders that expost commands wrote, files in them or a ledger.", metavar="RESULT"),
    ]
    policy: Annotated[
        Path | None, Option("policy.toml with the limits.", CRITERIA, metavar="FILE")
    ] = None
    fail_on: Annotated[
        tuple[str, ...],
        Option(
            "A limit in one expression, as 'epsilon>1' or 'auc<0.8' (repeatable).",
            CRITERIA,
            metavar="EXPRESSION",
        ),
    ] = ()
    junit: Annotated[
        Path | None, Option("Write the verdicts as JUnit XML.", RESULTS, metavar="FILE")
    ] = None
    markdown: Annotated[
        Path | None, Option("Write the verdicts as Markdown.", RESULTS, metavar="FILE")
    ] = None
    curator: Annotated[
        bool, Option("Print measured curator-only values too; keep them out of logs.", RESULTS)
    ] = False
    force: Annotated[bool, Option("Write over files that exist.", RESULTS)] = False


@dataclass(frozen=True, kw_only=True)
class DossierRequest(FolderRequest):
    """Options of ``expost dossier``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("Folders that expost commands wrote, files in them or a ledger.", metavar="RESULT"),
    ]
    deployment: Annotated[
        str,
        Option(
            "Who can use the model: everybody has the weights (public-model), users see answers"
            " (api), or staff have the model (internal).",
            CRITERIA,
            flag="--context",
            metavar="NAME",
            choices=DEPLOYMENTS,
        ),
    ]
    audience: Annotated[
        str,
        Option(
            "Who may read the dossier: public, with public figures alone, or curator-only, with"
            " those of single rows too.",
            CRITERIA,
            metavar="NAME",
            choices=READERS,
        ),
    ] = "public"
    baseline: Annotated[
        float | Mapping[str, float] | None, replace(BASELINE, default="1/1000 for each")
    ] = None


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(Request):
    """Options of ``expost verify``."""

    folder: Annotated[Path, Option("Folder with a manifest.", metavar="DIR")]
    results: Annotated[
        tuple[Path, ...],
        Option(
            "Results that were moved since the manifest was written, or their folders.",
            metavar="RESULT",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class CardRequest(Request):
    """Options of ``expost card``."""

    paths: Annotated[
        tuple[Path, ...],
        Option("model.json, report.json, summaries, or folders with them.", metavar="RESULT"),
    ]
    name: Annotated[
        str | None,
        Option("Name of the model, as org/model.", CRITERIA, metavar="NAME", read=read_model_name),
    ] = None
    license: Annotated[
        str | None,
        Option("Identifier of its licence, as apache-2.0.", CRITERIA, metavar="ID", read=read_id),
    ] = None
    baseline: Baseline = None
    out: Annotated[
        Path,
        Option("Folder for the results.", RESULTS, metavar="DIR", default="a new one, expost-…"),
    ]
    force: Annotated[bool, Option("Overwrite the results of an earlier run in DIR.", RESULTS)] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class DoctorRequest(Request):
    """Options of ``expost doctor``."""
