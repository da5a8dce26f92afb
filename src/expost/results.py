"""Results: shown as a figure or in a notebook, and tables with one line for each row.

Results lie below the report in the layers: a report is made of results, and no result needs a
report. :class:`Displayed` imports the report by name when a result is shown.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput, require
from expost.files.atomic import write_bytes, write_with
from expost.types import Audience

__all__ = ["Displayed", "RowTable", "ScalarTable", "audience_of", "row_keys"]


def audience_of(result: Any) -> Audience:
    """Return the audience of a result; without one it is curator-only."""
    audience = getattr(result, "audience", Audience.CURATOR_ONLY)
    return audience if isinstance(audience, Audience) else Audience.CURATOR_ONLY


class Displayed:
    """A result that is shown by its document: as text, as a figure and in a notebook."""

    def __str__(self) -> str:
        """Return the overview of the result's document."""
        report = import_module("expost.report")
        return str(report.render_text(report.document_of(self)))

    def plot(self, kind: str | None = None, *, ax: Any = None, **options: Any) -> Any:
        """Draw a figure of the result's document with matplotlib.

        Parameters
        ----------
        kind : str, optional
            The key of the figure (docs/reading-a-report.md); the first one by default.
        ax : matplotlib axes or sequence of axes, optional
            Where to draw, one for each panel; a new figure by default.
        **options
            What else belongs to this kind of result (docs/reading-a-report.md).

        Returns
        -------
        Drawing
            ``figure_`` and ``axes_`` of what was drawn, as scikit-learn's displays have them.
        """
        return import_module("expost.report.drawing").plot(self, kind=kind, ax=ax, **options)

    def _repr_html_(self) -> str:
        """Return the fragment that a notebook shows."""
        report = import_module("expost.report")
        return str(report.render_fragment(report.document_of(self)))


class RowTable(ABC, Displayed):
    """What results with per-row figures share; ``audience`` goes with every table of them."""

    audience: Audience

    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """Every per-row figure, by name."""

    def to_arrow(self) -> Any:
        """A pyarrow table, one row a row."""
        import pyarrow as pa

        table = pa.table(self.columns())
        return table.replace_schema_metadata({"audience": self.audience.value})

    def to_frame(self, library: str = "pandas") -> Any:
        """A pandas or polars frame."""
        _checks.one_of("library", library, ("pandas", "polars"))
        module = require(library, caller=f"{type(self).__name__}.to_frame", extra=library)
        return module.DataFrame(self.columns())

    def to_parquet(self, path: str | Path) -> Path:
        """Write the table; the file's name says CURATOR-ONLY and its owner alone may read it."""
        import pyarrow.parquet

        table = self.to_arrow()
        return write_with(
            self.audience.path(path),
            self.audience,
            lambda file: pyarrow.parquet.write_table(table, file),
        )

    def _json(self, value: Mapping[str, Any], path: str | Path | None) -> str | Path:
        """Return ``value`` as strict JSON text, or write it to a file as `to_parquet` does."""
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if path is None:
            return text
        return write_bytes(self.audience.path(path), self.audience, text.encode())


class ScalarTable(RowTable):
    """A table of rows with scalars, as JSON and as a dict for one audience."""

    @abstractmethod
    def scalars(self) -> dict[str, Any]:
        """Return the public scalars of the result."""

    def to_dict(self, audience: Audience | str = Audience.PUBLIC) -> dict[str, Any]:
        """Return the result as a dict for one audience.

        Parameters
        ----------
        audience
            "public": scalars that may be logged (ε, δ, mechanism, n). "curator-only": every figure
            of ``to_json``, with those of single rows.
        """
        if Audience(audience) is not Audience.CURATOR_ONLY:
            return self.scalars()
        whole: dict[str, Any] = json.loads(str(self.to_json()))
        return whole | self.scalars()

    @abstractmethod
    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return every figure as JSON text, or write it to a file of the audience."""


def row_keys(
    ids: Sequence[Any] | None, rows: int, *, entry: str = "ids: entry"
) -> tuple[Any, ...] | None:
    """Keys of rows as plain numbers or text, one for each row; ``entry`` names one in messages."""
    if ids is None:
        return None
    if isinstance(ids, str) or not hasattr(ids, "__iter__"):
        raise InvalidInput("ids: must be a sequence with one key for each row.")
    keys = tuple(key.item() if isinstance(key, np.generic) else key for key in ids)
    kinds = {type(key) for key in keys}
    if len(kinds) > 1 or not kinds <= {str, int, float, bool} or not _is_plain(keys):
        keys = tuple(_text(key, f"{entry} {place}") for place, key in enumerate(keys))
    if len(keys) != rows:
        raise InvalidInput(f"ids has {len(keys)} entries: must have one for each of {rows} rows.")
    return keys


def _is_plain(keys: tuple[Any, ...]) -> bool:
    """Whether a file holds each of them as it is."""
    return not any(
        not -(2**63) <= key < 2**63 if type(key) is int else not _checks.is_text(key)
        for key in keys
    )


def _text(key: Any, entry: str) -> str:
    try:
        text = str(key)
    # The key's own code runs here, and may raise anything.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{entry} has no text ({type(error).__name__}); pass numbers or text."
        ) from None
    if not _checks.is_text(text):
        raise InvalidInput(f"{entry} {_checks.LONE}.")
    return text
