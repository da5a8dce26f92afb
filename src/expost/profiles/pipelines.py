"""Pipelines of scikit-learn whose last step is a model: what the other steps do to rows.

A step that was fitted has read its constants from the rows it was fitted to (the means of a
StandardScaler, the levels of a OneHotEncoder). No guarantee of the model covers that, so such steps
are named beside everything else that was read from the data. A step that needs no fit
(FunctionTransformer, Normalizer) has read nothing.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

__all__ = ["Preprocessing"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Preprocessing:
    """The steps of a pipeline before its model, none for a model that is in no pipeline."""

    steps: Pipeline | None = None

    @classmethod
    def split(cls, model: Any) -> tuple[Self, Any]:
        """Return the steps before a model, and the model."""
        if not isinstance(model, Pipeline):
            return cls(), model
        return cls(steps=model[:-1] if len(model) > 1 else None), model[-1]

    def transform(self, X: Any) -> Any:
        """Return the rows as the model sees them."""
        return X if self.steps is None else self.steps.transform(X)

    def fitted_to(self, X: Any, y: Any) -> "Preprocessing":
        """Return the steps as they are if they have been fitted, else a copy fitted to rows."""
        if self.steps is None:
            return self
        try:
            check_is_fitted(self.steps)
        except NotFittedError:
            return Preprocessing(steps=clone(self.steps).fit(X, y))
        return self

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """The steps that were fitted, each as a part of a sentence."""
        return tuple(f"the pipeline step {name}" for name in _fitted(self.steps))


def _fitted(step: Any, path: str = "") -> Iterator[str]:
    """Yield the steps inside a step, or itself, that read anything from rows when they are fitted.

    Each is named by its path in the pipeline and by its class.
    """
    if step is None or isinstance(step, str):
        return  # none, "passthrough" or "drop"
    inside = _inside(step)
    if inside is None:
        if _needs_fit(step):
            yield f"{path!r} ({type(step).__name__})"
        return
    for name, inner in inside:
        yield from _fitted(inner, f"{path}.{name}" if path else name)


def _inside(step: Any) -> list[tuple[str, Any]] | None:
    """Return the named steps that a step is made of; None: it is not made of any."""
    if isinstance(step, Pipeline):
        return list(step.steps)
    if isinstance(step, FeatureUnion):
        return list(step.transformer_list)
    # Not imported, which takes time: where there is a ColumnTransformer its module has been.
    compose = sys.modules.get("sklearn.compose")
    if compose is not None and isinstance(step, compose.ColumnTransformer):
        return [(name, inner) for name, inner, _ in step.transformers]
    return None


def _needs_fit(step: Any) -> bool:
    """Whether a step reads anything from rows; of one that does not say so it is assumed."""
    try:
        return bool(get_tags(step).requires_fit)
    except Exception:  # noqa: BLE001 (steps of other libraries run their own code here)
        return True
