"""Results: their display as text, as a figure and in a notebook, and their tables of rows.

Reports are made of results, and no result needs a report: the report package is a higher layer.
:class:`Displayed` imports it by name when a result is displayed.
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

__all__ = ["Displayed", "RowTable", "ScalarTable", "row_keys"]


class Displayed:
    """A result that its document displays: as text, as a figure and in a notebook."""

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
            The axes to draw on, one for each panel; a new figure by default.
        **options : Any
            Further options of this kind of result (docs/reading-a-report.md).

        Returns
        -------
        Drawing
            The ``figure_`` and its ``axes_``, as in scikit-learn's displays.
        """
        return import_module("expost.report.drawing").plot(self, kind=kind, ax=ax, **options)

    def _repr_html_(self) -> str:
        """Return the HTML fragment for a notebook."""
        report = import_module("expost.report")
        return str(report.render_fragment(report.document_of(self)))


class RowTable(ABC, Displayed):
    """A result with per-row figures; ``audience`` is written into every table of them."""

    audience: Audience

    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """Return every per-row figure, by name.

        Returns
        -------
        dict of str to array
            Each array has one entry per row.
        """

    def to_arrow(self) -> Any:
        """Return the per-row figures as a pyarrow table.

        Returns
        -------
        pyarrow.Table
            One line for each row; the metadata of the schema holds the audience.
        """
        import pyarrow as pa

        table = pa.table(self.columns())
        return table.replace_schema_metadata({"audience": self.audience.value})

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the per-row figures as a data frame.

        Parameters
        ----------
        library : {"pandas", "polars"}
            The library of the frame.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            One line for each row.

        Raises
        ------
        MissingExtra
            If the library is not installed.
        """
        _checks.one_of("library", library, ("pandas", "polars"))
        module = require(library, caller=f"{type(self).__name__}.to_frame", extra=library)
        return module.DataFrame(self.columns())

    def to_parquet(self, path: str | Path) -> Path:
        """Write the per-row figures to a Parquet file.

        Unless the audience is public, only the owner can read the file and its name contains
        CURATOR-ONLY.

        Parameters
        ----------
        path : str | Path
            The path of the file, as ``profile.parquet``.

        Returns
        -------
        Path
            The path that was written.
        """
        import pyarrow.parquet

        table = self.to_arrow()
        return write_with(
            self.audience.path(path),
            self.audience,
            lambda file: pyarrow.parquet.write_table(table, file),
        )

    def _json(self, value: Mapping[str, Any], path: str | Path | None) -> str | Path:
        """Return ``value`` as strict JSON, or write it to a file as :meth:`to_parquet` does."""
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if path is None:
            return text
        return write_bytes(self.audience.path(path), self.audience, text.encode())


class ScalarTable(RowTable):
    """A table of rows with public scalars, as JSON and as a dict for one audience."""

    @abstractmethod
    def scalars(self) -> dict[str, Any]:
        """Return the public scalars of the result."""

    def to_dict(self, audience: Audience | str = Audience.PUBLIC) -> dict[str, Any]:
        """Return the result as a dict for one audience.

        Parameters
        ----------
        audience : Audience | str, default=Audience.PUBLIC
            "public": scalars that may be logged (ε, δ, mechanism, n). "curator-only": every figure
            of ``to_json``, with those of single rows.

        Returns
        -------
        dict of str to Any
            Values of JSON.

        Raises
        ------
        InvalidInput
            If there is no such audience.
        """
        if _checks.audience(audience) is not Audience.CURATOR_ONLY:
            return self.scalars()
        figures: dict[str, Any] = json.loads(str(self.to_json()))
        return figures | self.scalars()

    @abstractmethod
    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return every figure as JSON, or write it to a file.

        Parameters
        ----------
        path : str | Path, optional
            The path of the file; None returns the JSON string.

        Returns
        -------
        str or Path
            The JSON string, or the path that was written.
        """


def row_keys(
    ids: Sequence[Any] | None, rows: int, *, entry: str = "ids: entry"
) -> tuple[Any, ...] | None:
    """Return the keys of rows as plain numbers or strings; ``entry`` names one in messages."""
    if ids is None:
        return None
    name = entry.partition(":")[0]
    if isinstance(ids, str) or not hasattr(ids, "__iter__"):
        raise InvalidInput(f"{name}: must be a sequence with one key for each row.")
    keys = tuple(key.item() if isinstance(key, np.generic) else key for key in ids)
    kinds = {type(key) for key in keys}
    if len(kinds) > 1 or not kinds <= {str, int, float, bool} or not _is_plain(keys):
        keys = tuple(_string(key, f"{entry} {index}") for index, key in enumerate(keys))
    if len(keys) != rows:
        raise InvalidInput(
            f"{name} has {len(keys)} entries: must have one for each of {rows} rows."
        )
    return keys


def _is_plain(keys: tuple[Any, ...]) -> bool:
    """Return whether a file can hold each key as it is."""
    return not any(
        not -(2**63) <= key < 2**63 if type(key) is int else not _checks.is_encodable(key)
        for key in keys
    )


def _string(key: Any, entry: str) -> str:
    try:
        string = str(key)
    # The key's own code runs here and may raise any exception.
    except Exception as error:  # noqa: BLE001 (see above)
        raise InvalidInput(
            f"{entry} cannot be converted to a string ({type(error).__name__}); pass numbers or"
            " strings."
        ) from None
    if not _checks.is_encodable(string):
        raise InvalidInput(f"{entry} {_checks.LONE_SURROGATE}.")
    return string
