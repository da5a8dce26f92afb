"""``expost risk``: what a guarantee means for a person, and its page and chart."""

from pathlib import Path

from expost.errors import InvalidInput
from expost.files.atomic import is_same_file, read_json, write_bytes
from expost.jobs.options import FORECAST, GOAL, GUARANTEE, options_of
from expost.jobs.output import made_now
from expost.jobs.pages import check_answer, files_at, named_source, store_answer, store_page
from expost.jobs.requests import RiskRequest
from expost.jobs.workspace import Workspace
from expost.profiles import identifiability
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import FORMAT
from expost.profiles.stored import PROFILE, StoredProfile
from expost.report import Context, page_of
from expost.risk.statement import Identifiability

__all__ = ["run"]

# What is explained of a folder: its profile, else its model.
_EXPLAINED = (PROFILE, "model.json")
_MISSING = "profile and no model.json; name a folder with one."
_PANELS = (GUARANTEE, GOAL, FORECAST)
_CRITERIA = ("prior", "false_positive_rate", "exceeded", "baseline")


def run(request: RiskRequest) -> tuple[Identifiability | RowIdentifiability, dict[str, Path]]:
    """Return the answer, and the files of its page and its chart."""
    check_answer(request)
    options = options_of(RiskRequest)
    names = [name for name, option in options.items() if option.panel in _PANELS]
    path = None if request.model is None else files_at([request.model], _EXPLAINED, _MISSING)[0]
    profile = None if path is None or not _is_profile(path) else StoredProfile.load(path)
    answer: Identifiability | RowIdentifiability = identifiability.identifiability(
        path if profile is None else profile,
        **{name: getattr(request, name) for name in (*names, *_CRITERIA)},
    )
    inputs = [] if path is None else [path]
    if request.plot is not None:
        _check_plot(answer, request.plot, path)

    def store(workspace: Workspace) -> dict[str, Path]:
        usual = "model.json" if profile is None else PROFILE
        shown = {"usual": usual, "what": "a released model"}
        sources = [named_source(path, answer.audience, **shown) for path in inputs]
        context = Context(source=sources[0] if sources else None, made=made_now())
        return store_page(workspace, page_of(answer, context=context))

    files = store_answer(request, inputs, store)
    if request.plot is not None:
        content = answer.plot("epsilon").png()
        path = answer.audience.path(request.plot)
        files["plot"] = write_bytes(path, answer.audience, content)
    return answer, files


def _is_profile(path: Path) -> bool:
    content = read_json(path)
    name = content.get("format") if isinstance(content, dict) else None
    return str(name).startswith(FORMAT.partition("/")[0] + "/")


def _check_plot(
    answer: Identifiability | RowIdentifiability, path: Path, model: Path | None
) -> None:
    """Refuse a chart that cannot be drawn, before anything is written."""
    if not isinstance(answer, Identifiability):
        raise InvalidInput(f"--plot {str(path)!r}: draws a guarantee; name a model.json with it.")
    if path.suffix.lower() != ".png":
        raise InvalidInput(f"--plot {str(path)!r}: must end in .png.")
    target = answer.audience.path(path)
    if model is not None and is_same_file(model, target):
        raise InvalidInput(f"--plot {str(target)!r}: is the model; name another file.")
    # Without a finite ε there are no curves, and this raises the reason.
    answer.curves()
