"""``expost conform``: a trainer of a module in the current folder, checked against its claims."""

import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from expost.conformance import Claims, Conformance
from expost.errors import InvalidInput
from expost.jobs.output import made_now
from expost.jobs.pages import check_answer, store_answer, store_page
from expost.jobs.requests import ConformRequest
from expost.jobs.workspace import Workspace
from expost.report import Context, page_of

__all__ = ["run"]


def run(request: ConformRequest) -> tuple[Conformance, dict[str, Path]]:
    """Return the verdicts, and the files of their page."""
    check_answer(request)
    clip = request.clip
    if len(clip) == 1:
        (clip,) = clip  # type: ignore[assignment] # one number for all layers
    names = [item.name for item in fields(Claims) if item.name != "clip"]
    claims = Claims(clip=clip, **{name: getattr(request, name) for name in names})
    trainer = named_trainer(request.trainer)
    options: dict[str, Any] = {"false_alarm": request.false_alarm, "steps": request.steps}
    result: Conformance = _library(request)(trainer, claims, **options, name=request.trainer)

    def store(workspace: Workspace) -> dict[str, Path]:
        return store_page(workspace, page_of(result, context=Context(made=made_now())))

    return result, store_answer(request, [], store)


def _library(request: ConformRequest) -> Any:
    """Return the function that checks trainers of the library."""
    modules = {"torch": "expost.torch", "numpy": "expost.conformance"}
    if request.arrays not in modules:
        raise InvalidInput(f"--arrays {request.arrays!r}: must be one of {', '.join(modules)}.")
    return import_module(modules[request.arrays]).conform


def named_trainer(name: str) -> Any:
    """Return the function ``module:function``, from the current folder first; runs its module."""
    module, _, function = name.partition(":")
    if not module or not function.isidentifier():
        raise InvalidInput(f"TRAINER {name!r}: must be module:function, as steps:trainer.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        trainer = getattr(import_module(module), function)
    # Importing runs code of others, which may raise anything; a script's exit is no verdict.
    except (Exception, SystemExit) as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"TRAINER {name!r}: cannot be imported from the current folder"
            f" ({type(error).__name__}: {error})."
        ) from None
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(trainer):
        raise InvalidInput(f"TRAINER {name!r}: is not a function.")
    return trainer
