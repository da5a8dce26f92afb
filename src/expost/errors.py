"""Everything expost raises or warns with, and the import of optional dependencies.

An error names the parameter, its value, the constraint and the remedy in one sentence, and
never shows a row's values.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, Self

__all__ = [
    "AlreadyFinished",
    "BudgetWarning",
    "ClippedRowsWarning",
    "ConvergenceError",
    "ExpostError",
    "InvalidInput",
    "MissingExtra",
    "NoPromiseWarning",
    "NotInLedgerWarning",
    "PrecisionWarning",
    "PrivacyLeakWarning",
    "RaisedRegularizationWarning",
    "ReleaseRefused",
    "SeededReleaseWarning",
    "UnscaledColumnsWarning",
    "UselessModelWarning",
    "WrongRows",
    "require",
]


# Where the interpreter itself keeps what was being handled when an error was raised.
_CONTEXT = BaseException.__dict__["__context__"]


class ExpostError(Exception):
    """Base of every error that expost raises on purpose.

    It has no ``__context__``: most are raised while an error of another library is handled, whose
    message may quote a cell, and ``from None`` would only keep that one from being displayed.
    Loggers and error trackers follow the chain all the same.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Displayed alone also by the interpreter, which does not ask the property below."""
        error = super().__new__(cls, *args, **named)
        error.__suppress_context__ = True
        return error

    @property
    def __context__(self) -> BaseException | None:
        """None; what the interpreter put there is dropped."""
        _CONTEXT.__set__(self, None)
        return None

    @__context__.setter
    def __context__(self, _: BaseException | None) -> None:
        _CONTEXT.__set__(self, None)


class InvalidInput(ExpostError, ValueError):
    """A parameter or a table that cannot be worked with; a ``ValueError`` too."""


class WrongRows(InvalidInput):
    """These rows cannot have made this model: other rows, another order or another encoding."""


class AlreadyFinished(InvalidInput):
    """A run that was to be resumed has ended, and its results are whole."""


class ConvergenceError(ExpostError, ArithmeticError):
    """A computation did not reach the accuracy that its result would have promised."""


class ReleaseRefused(ExpostError):
    """A release that could not be made safely (see SECURITY.md), so none was made."""


class MissingExtra(ExpostError, ImportError):
    """An optional dependency is not installed; the message names the ``pip install``."""


class PrivacyLeakWarning(UserWarning):
    """A bound, level or label set was read from the data, which is not private."""


class SeededReleaseWarning(UserWarning):
    """A release drew its noise from a seed: the seed is enough to remove it again."""


class UnscaledColumnsWarning(UserWarning):
    """Columns have other scales than the default clip is meant for."""


class UselessModelWarning(UserWarning):
    """The noise of a release exceeds any useful model: expect no more than the base rate."""


class PrecisionWarning(UserWarning):
    """A result is right, but its error bound is larger than what was asked for."""


class NoPromiseWarning(UserWarning):
    """The mechanism promises no epsilon for this loss; what a release gives away is still known."""


class NotInLedgerWarning(UserWarning):
    """A model is not in the ledger beside it: what its data has spent in all is not known."""


class RaisedRegularizationWarning(UserWarning):
    """Objective perturbation needed more regularization at this epsilon than was asked for."""


class ClippedRowsWarning(UserWarning):
    """Rows or labels lay past their bound and were clipped to it."""


class BudgetWarning(UserWarning):
    """An estimator was copied to be fitted again: every fit spends its epsilon again."""


def require(module: str, *, caller: str, extra: str) -> ModuleType:
    """Import ``module`` for ``caller``, or say which ``pip install`` brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{caller} needs {module}, which is not installed: pip install 'expost[{extra}]'."
        ) from error
