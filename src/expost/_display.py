"""How a result shows itself: as a figure, and as a fragment of the report in a notebook.

Results lie below the report in the layers, since a report is made of them and none of them needs
one. A person who holds a result wants to see it, though, and so this one place reaches up: the
report is imported by name when somebody looks, and nothing that is computed depends on it.
"""

from importlib import import_module
from typing import Any

__all__ = ["Displayed"]


class Displayed:
    """A result with a figure (``plot``) and a fragment of the report (in a notebook)."""

    def plot(self, **options: Any) -> Any:
        """The result as a figure of matplotlib; returns the display that was drawn.

        ``ax``   axes to draw into (``axes`` where there are several); a new figure if left out.
        Other options are those of the result's figure (docs/figures.md). The figure is
        ``.figure_``, its axes ``.ax_`` or ``.axes_``, as with scikit-learn's displays.
        """
        return import_module("expost.report.plots").plot(self, **options)

    def _repr_html_(self) -> str:
        """The fragment that a notebook shows."""
        return str(import_module("expost.report.fragments").fragment(self))
