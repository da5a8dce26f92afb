"""``expost card``: a model card and an entry of a registry, from released results."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from expost.errors import InvalidInput
from expost.files.atomic import read_json, write_bytes
from expost.files.sealed import plain
from expost.jobs.output import NOTHING_LEFT, RELEASES, check_page_folder, writing
from expost.jobs.pages import SUMMARIES, files_at, read_page
from expost.jobs.requests import CardRequest
from expost.jobs.workspace import held
from expost.profiles import identifiability
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report.card import ModelCard, render_card, render_deployment
from expost.report.document import Document
from expost.risk import EpsilonDelta
from expost.risk.statement import Identifiability
from expost.types import Audience

__all__ = ["Outcome", "run"]

_MISSING = (
    "release and no summary; name a folder that expost profile or publish wrote, or model.json or"
    " report.json in it."
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The files of a card, and what it leaves out.

    ``left_out`` are the kinds of documents that are not public.
    """

    card: ModelCard
    files: dict[str, Path]
    left_out: tuple[str, ...]

    @property
    def figures(self) -> dict[str, Any]:
        """The public figures of the model."""
        return {**plain(self.card.release.scalars()), "left_out": list(self.left_out)}

    def lines(self) -> list[str]:
        """Return the lines that the command prints."""
        lines = [self.card.description]
        if not self.card.is_public:
            lines.append("The model needs review: the card says so, and shows its guarantee alone.")
        if self.left_out:
            lines.append(f"left out  {', '.join(self.left_out)}: not public")
        return [*lines, "Fill in what the two files mark before you use them."]


def run(request: CardRequest) -> Outcome:
    """Run the job."""
    check_page_folder(request.out, force=request.force)
    files = files_at(request.paths, (*RELEASES, *SUMMARIES), _MISSING)
    releases = [file for file in files if not _is_summary(file)]
    release, report = _released(releases)
    documents = [document for file in files if _is_summary(file) for document in _documents(file)]
    card = ModelCard(
        release=release,
        report=report,
        answer=_answer(release, report, request),
        documents=tuple(each for each in documents if each.audience is Audience.PUBLIC),
        files={_shown_name(file): _digest(file) for file in releases},
        name=request.name,
        license=request.license,
        version=version("expost"),
    )
    contents = {
        "card": (Audience.PUBLIC.file_name("card", "md"), render_card(card)),
        "registry": (Audience.PUBLIC.file_name("deployment", "yaml"), render_deployment(card)),
    }
    written: dict[str, Path] = {}
    with held(request.out, force=request.force, inputs=files, page=True) as workspace:
        out = workspace.out
        with writing(out, NOTHING_LEFT), workspace.all_or_none():
            for name, (file, content) in contents.items():
                written[name] = write_bytes(out / file, Audience.PUBLIC, content.encode())
            workspace.remove_results(keep=written.values())
    hidden = dict.fromkeys(each.kind for each in documents if each.audience is not Audience.PUBLIC)
    return Outcome(card=card, files=written, left_out=tuple(hidden))


def _is_summary(path: Path) -> bool:
    return path.name.startswith("summary.")


def _released(files: Sequence[Path]) -> tuple[Release, PublishedReport | None]:
    """Return the one model of these files, and its report if there is one."""
    models: list[Release] = []
    reports: list[PublishedReport] = []
    for file in files:
        value = read_json(file)
        if isinstance(value, dict) and value.get("format") == PublishedReport.FORMAT:
            reports.append(PublishedReport.load(file))
        else:
            models.append(Release.load(file))
    known = [*models, *(report.release for report in reports)]
    if not known:
        raise InvalidInput("paths: hold no model.json and no report.json; name one of them.")
    if len({release.to_json()["sha256"] for release in known}) > 1 or len(reports) > 1:
        raise InvalidInput("paths: hold several models or reports; a card is of one model.")
    return known[0], reports[0] if reports else None


def _answer(
    release: Release, report: PublishedReport | None, request: CardRequest
) -> Identifiability:
    """Return what the guarantee of everything that was released allows."""
    if report is None or report.budget is None:
        return identifiability.identifiability(release, baseline=request.baseline)
    epsilon, delta = report.spending.together
    whole = EpsilonDelta(epsilon=epsilon, delta=delta)
    return identifiability.identifiability(whole, baseline=request.baseline)


def _documents(path: Path) -> tuple[Document, ...]:
    return read_page(path).documents


def _shown_name(path: Path) -> str:
    """Return the usual name of a release: any other might reveal something about the data."""
    return path.name if path.name in RELEASES else "a released model"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
