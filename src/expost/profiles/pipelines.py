"""Pipelines of scikit-learn whose last step is a model: what the other steps do to rows.

A step that was fitted has read its constants from the rows it was fitted to (the means of a
StandardScaler, the levels of a OneHotEncoder). No guarantee of the model covers that, so such steps
are listed with everything else that was read from the data. A step that needs no fit
(FunctionTransformer, Normalizer) has read nothing.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["Preprocessing", "Step"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a pipeline before its model.

    Parameters
    ----------
    name : str
        Its path in the pipeline, and its class.
    fitted : bool
        Whether it has read constants from the rows it was fitted to.
    """

    name: str
    fitted: bool

    def __str__(self) -> str:
        return f"the pipeline step {self.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Preprocessing:
    """The steps of a pipeline before its model, none for a model that is in no pipeline."""

    steps: Any = None

    @classmethod
    def split(cls, model: Any) -> tuple[Self, Any]:
        """Return the steps before a model, and the model."""
        if not _is_a(model, "pipeline.Pipeline"):
            return cls(), model
        return cls(steps=model[:-1] if len(model) > 1 else None), model[-1]

    def transform(self, X: Any) -> Any:
        """Return the rows as the model sees them."""
        return X if self.steps is None else self.steps.transform(X)

    def fitted_to(self, X: Any, y: Any) -> "Preprocessing":
        """Return the steps as they are if they have been fitted, else a copy fitted to rows."""
        if self.steps is None:
            return self
        from sklearn.base import clone
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        try:
            check_is_fitted(self.steps)
        except NotFittedError:
            return Preprocessing(steps=clone(self.steps).fit(X, y))
        return self

    @property
    def named_steps(self) -> tuple[Step, ...]:
        """The steps; composite steps are replaced by their parts."""
        return tuple(_named(self.steps))

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """The steps that were fitted, each as a part of a sentence."""
        return tuple(str(step) for step in self.named_steps if step.fitted)


def _named(step: Any, path: str = "") -> Iterator[Step]:
    """Yield the steps inside a step, or itself."""
    if step is None or isinstance(step, str):
        return  # none, "passthrough" or "drop"
    inside = _inside(step)
    if inside is None:
        yield Step(name=f"{path!r} ({type(step).__name__})", fitted=_needs_fit(step))
        return
    for name, inner in inside:
        yield from _named(inner, f"{path}.{name}" if path else name)


def _inside(step: Any) -> list[tuple[str, Any]] | None:
    """Return the named steps that a step is made of; None: it is not made of any."""
    if _is_a(step, "pipeline.Pipeline"):
        return list(step.steps)
    if _is_a(step, "pipeline.FeatureUnion"):
        return list(step.transformer_list)
    if _is_a(step, "compose.ColumnTransformer"):
        each = [(name, inner) for name, inner, _ in step.transformers]
        return [*each, ("remainder", step.remainder)]
    return None


def _is_a(value: Any, name: str) -> bool:
    """Return whether a value is of a class of scikit-learn, by its module and name.

    The module is not imported, which takes time: if there is a value of the class, it has been.
    """
    module, kind = name.split(".")
    imported = sys.modules.get(f"sklearn.{module}")
    return imported is not None and isinstance(value, getattr(imported, kind))


def _needs_fit(step: Any) -> bool:
    """Return whether a step reads anything from rows; assumed if unknown."""
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(step).requires_fit)
    except Exception:  # noqa: BLE001 (steps of other libraries run their own code here)
        return True
