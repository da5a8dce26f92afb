"""``expost report``: the summaries that other commands wrote, on one page.

Nothing is computed: what is shown was found by the commands that wrote the folders. What is read
came from outside, and is refused in one sentence where it is not whole or does not belong together.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from expost.errors import ExpostError, InvalidInput
from expost.jobs.output import check_page_folder
from expost.jobs.pages import SUMMARIES, read_summary, store_page
from expost.jobs.workspace import Workspace, held
from expost.report import Summary
from expost.types import Neighbouring

__all__ = ["Outcome", "ReportJob", "run"]

# Of which data these are is named by their source; the others are of a model or of a promise.
_OF_A_TABLE = ("profile", "epsilon", "audit")


@dataclass(frozen=True, kw_only=True)
class ReportJob:
    """Folders that expost wrote, or summaries in them, and where their page goes.

    ``public``  show nothing but what is marked pass.
    """

    paths: tuple[Path, ...]
    out: Path
    public: bool = False
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it; ``left_out`` are the kinds of parts that a public page does not show."""

    summary: Summary
    files: dict[str, Path]
    read: tuple[Path, ...]
    left_out: tuple[str, ...]

    def lines(self) -> list[str]:
        """What a person reads at the end."""
        mark = self.summary.audience
        lines = [self.summary.title, *(f"- {sentence}" for sentence in self.summary.answer), ""]
        lines += [f"shown     {', '.join(self.summary.by_name)}"]
        if self.left_out:
            lines += [f"left out  {', '.join(self.left_out)}: not marked pass"]
        lines += [f"mark      {mark.value}: {mark.meaning}"]
        lines += ["", "Files", *(f"  {name:<9} {path}" for name, path in self.files.items())]
        return [*lines, "", f"Report: {self.files['report'].resolve()}"]


def run(job: ReportJob) -> Outcome:
    """Do the job."""
    read = _found(job.paths)
    _check_out(job, read)
    whole = _merged(read)
    summary = whole.public() if job.public else whole
    left_out = tuple(name for name in whole.by_name if name not in summary.by_name)
    with held(job.out, force=job.force, inputs=read, page=True) as workspace:
        files = _stored(workspace, summary)
    return Outcome(summary=summary, files=files, read=tuple(read), left_out=left_out)


def _stored(workspace: Workspace, summary: Summary) -> dict[str, Path]:
    """Write the page: figures of a file may be of the right types, and none that can be shown."""
    try:
        return store_page(workspace, summary)
    except (ExpostError, OSError):
        raise
    # Templates and charts raise errors of their own.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"summary: holds figures that cannot be shown ({type(error).__name__}); make it again"
            " with the command that wrote it."
        ) from None


def _found(paths: Sequence[Path]) -> list[Path]:
    """The summaries at these paths, each once."""
    files = [file for path in paths for file in _at(path)]
    return list({file.resolve(): file for file in files}.values())


def _at(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    inside = [path / name for name in SUMMARIES if (path / name).exists()]
    if not inside:
        raise InvalidInput(
            f"{path}: holds no summary of a result ({' or '.join(SUMMARIES)}); name a folder that"
            " expost profile, epsilon, publish, risk or audit wrote."
        )
    yield from inside


def _check_out(job: ReportJob, read: Sequence[Path]) -> None:
    """Refuse a folder that holds a release or what is read, before any work."""
    for path in read:
        if path.resolve().parent == job.out.resolve():
            raise InvalidInput(
                f"out={str(job.out)!r}: {path} is in it, and would be written over; name another"
                " folder."
            )
    check_page_folder(job.out, force=job.force)


def _merged(files: Sequence[Path]) -> Summary:
    """All parts in one summary; each kind is in one file alone, and all are of one table."""
    whole: Summary | None = None
    kept: dict[str, Path] = {}
    for file in files:
        summary = read_summary(file)
        for name in summary.by_name:
            if name in kept:
                raise InvalidInput(
                    f"{file}: holds a part of the kind {name!r}, and so does {kept[name]}; a page"
                    " shows one, so make two pages."
                )
        kept |= dict.fromkeys(summary.by_name, file)
        whole = summary if whole is None else whole.merged(summary)
    assert whole is not None
    _check_together(whole, kept)
    return whole


def _check_together(whole: Summary, kept: dict[str, Path]) -> None:
    """Refuse what is not of one table and one model, as far as that is told."""
    parts = whole.by_name
    told = [(parts[name].source, kept[name]) for name in _OF_A_TABLE if name in parts]
    named = [(source, path) for source, path in told if source is not None]
    for source, path in named[1:]:
        first, beside = named[0]
        if source != first:
            raise InvalidInput(
                f"{path}: is of {source!r}, and {beside} of {first!r}; a page is of one table, so"
                " make two pages."
            )
    _check_promise(whole, kept)
    profile, published = whole.profile, whole.published
    if profile is None or published is None or profile.relation is not Neighbouring.REMOVE:
        return
    spent = [line.epsilon for line in published.budget[:1] if line.epsilon < math.inf]
    known = [] if profile.epsilon is None else [profile.epsilon]
    apart = any(not math.isclose(one, other) for one in spent for other in known)
    if profile.rows != published.rows or apart:
        raise InvalidInput(
            f"{kept['published']}: is of another model than {kept['profile']} (rows or epsilon"
            " differ); publish the model that was profiled, or make two pages."
        )


def _check_promise(whole: Summary, kept: dict[str, Path]) -> None:
    """Refuse what the promise of one model allows beside the profile of another."""
    profile, risk = whole.profile, whole.risk
    if profile is None or risk is None or profile.epsilon is None or risk.epsilon is None:
        return
    # At another δ, or for several releases, or where no model was named, ε is another figure.
    of_a_model = risk.source is not None and risk.releases == 1
    same_delta = risk.delta == (profile.delta or 0.0)
    # A Gaussian scale is rounded up by 1e-6.
    apart = not math.isclose(profile.epsilon, risk.epsilon, rel_tol=1e-4)
    if of_a_model and same_delta and apart:
        raise InvalidInput(
            f"{kept['risk']}: is of another model than {kept['profile']} (epsilon differs); ask"
            " expost risk about the model that was profiled, or make two pages."
        )
