"""Errors and warnings of expost, and the import of optional dependencies.

An error message names the parameter, its value, the constraint and the remedy. It never contains
the values of a row.
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
    "NoGuaranteeWarning",
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


# The slot in which the interpreter stores the error that was being handled.
_CONTEXT = BaseException.__dict__["__context__"]


class ExpostError(Exception):
    """Base of every error that expost raises on purpose.

    It has no ``__context__``. Most errors are raised while an error of another library is handled,
    and the message of that error may quote a cell. ``from None`` would only hide it from the
    traceback: loggers and error trackers follow the chain nevertheless.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Suppress the context for the interpreter, which does not use the property below."""
        error = super().__new__(cls, *args, **named)
        error.__suppress_context__ = True
        return error

    @property
    def __context__(self) -> BaseException | None:
        """None; the error that the interpreter stored is dropped."""
        _CONTEXT.__set__(self, None)
        return None

    @__context__.setter
    def __context__(self, _: BaseException | None) -> None:
        _CONTEXT.__set__(self, None)


class InvalidInput(ExpostError, ValueError):
    """A parameter or a table that is not valid; a ``ValueError`` too."""


class WrongRows(InvalidInput):
    """The model was not trained on these rows, in this order and encoding."""


class AlreadyFinished(InvalidInput):
    """A run to be resumed has finished, and its results are complete."""


class ConvergenceError(ExpostError, ArithmeticError):
    """A computation did not reach the accuracy that its result must have."""


class ReleaseRefused(ExpostError):
    """A release was not made because it could not be made safely (see SECURITY.md)."""


class MissingExtra(ExpostError, ImportError):
    """An optional dependency is not installed; the message names the ``pip install``."""


class PrivacyLeakWarning(UserWarning):
    """A bound, level or label set was read from the data, which is not private."""


class SeededReleaseWarning(UserWarning):
    """A release drew its noise from a seed: anyone with the seed can remove the noise."""


class UnscaledColumnsWarning(UserWarning):
    """The scales of columns differ from those that the default clipping is meant for."""


class UselessModelWarning(UserWarning):
    """The noise of a release exceeds any useful model: expect the accuracy of the base rate."""


class PrecisionWarning(UserWarning):
    """A result is correct, but its error bound is larger than requested."""


class NoGuaranteeWarning(UserWarning):
    """The mechanism has no guarantee ε for this loss; privacy losses are still computed."""


class NotInLedgerWarning(UserWarning):
    """A model is not in the ledger of its folder: the total spent on its data is unknown."""


class RaisedRegularizationWarning(UserWarning):
    """Objective perturbation needed more regularization at this epsilon than requested."""


class ClippedRowsWarning(UserWarning):
    """Rows or labels exceeded their bound and were clipped to it."""


class BudgetWarning(UserWarning):
    """An estimator was copied to be fitted again: every fit spends its epsilon again."""


def require(module: str, *, caller: str, extra: str) -> ModuleType:
    """Import an optional dependency.

    Parameters
    ----------
    module : str
        The module to import.
    caller : str
        The feature that needs it, for the message.
    extra : str
        The extra of expost that installs it.

    Returns
    -------
    ModuleType
        The imported module.

    Raises
    ------
    MissingExtra
        If it is not installed; the message names the ``pip install``.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{caller} needs {module}, which is not installed: pip install 'expost[{extra}]'."
        ) from error
