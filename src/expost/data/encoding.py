"""The public constants that turn a table into features.

    table    = open_table("people.csv", missing=("", "NA"))
    encoding = Encoding.read(table, target="income")
    encoded  = encoding.encode_table(table)        # X (n, d), y (n,), ids

Numeric columns are standardised, (x − mean)/scale, and cut at ±2; all others become one 0/1 feature
per level. A missing cell becomes the median with an indicator, or its own level. Constant columns
are left out. :class:`~expost.data.unit_ball.UnitBall` maps the features into the unit ball, by
``data_norm``: √p/2 of p columns by default. A standardised number, or the 0/1 features of one
column together, have a mean square of about 1, so that √p is the root mean square length of a row.
At half of it nearly every row is clipped, and keeps its direction, which a linear model uses.

Preprocessing is a public constant: removing a row does not change it. Constants that were read from
the data are marked and are not private; :meth:`Encoding.read` warns of them by a
``PrivacyLeakWarning``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost.data import _entries, _reading
from expost.data._entries import Entry, LevelEntry, Mark, NumericEntry, Target
from expost.data.frames import frame_of, position_names
from expost.data.histograms import Histograms
from expost.data.sources import Kind, Table, open_table
from expost.data.unit_ball import default_norm
from expost.errors import InvalidInput
from expost.files import atomic
from expost.types import Audience, FloatArray

__all__ = ["MISSING", "Encoded", "Encoding", "given_encoding", "open_encoded"]

_FORMAT = "expost encoding"
_VERSION = 2
# The default tokens of a missing cell.
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null")
# Releases histograms of these columns of a table, which have a range, or None if of levels.
ReleaseHistograms = Callable[[Table, Mapping[str, tuple[float, float] | None]], Histograms]
# Entries of X per block.
_BLOCK_ENTRIES = 2**20


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Rows as numbers.

    Attributes
    ----------
    X : FloatArray
        (n, d) the features.
    y : FloatArray
        (n,) the labels: ±1, classes counted from 0, or numbers.
    ids : NDArray[np.object_] | None
        (n,) the ids of the rows, or None if the table has none.
    feature_names : tuple[str, ...]
        The names of the columns of X.
    unknown : Mapping[str, int]
        By column, the number of cells that are no level of the encoding (all zeros in X).
    """

    X: FloatArray
    y: FloatArray
    ids: NDArray[np.object_] | None
    feature_names: tuple[str, ...]
    unknown: Mapping[str, int]

    def __repr__(self) -> str:
        """Return the shape, and never a row."""
        rows, columns = self.X.shape
        return f"Encoded({rows} rows, {columns} features)"


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The encoding of the columns of a table as features.

    Attributes
    ----------
    entries : tuple[NumericEntry | LevelEntry, ...]
        The encoding of each column.
    target : Target
        The column to predict.
    data_norm : float
        The bound on the norm of a row of features.
    data_norm_mark : Mark
        The origin of ``data_norm``.
    missing : tuple[str, ...]
        The tokens of a missing cell.
    dropped : tuple[tuple[str, Mark], ...]
        The columns that are left out: named by a person, or constant in the data.
    histograms : Histograms | None
        The private release that some of the constants follow from, or None.
    """

    entries: tuple[Entry, ...]
    target: Target
    data_norm: float
    data_norm_mark: Mark
    missing: tuple[str, ...] = ("",)
    dropped: tuple[tuple[str, Mark], ...] = ()
    histograms: Histograms | None = None

    def __repr__(self) -> str:
        """Return the sizes: estimators print their parameters in full."""
        columns, features = len(self.entries), len(self.feature_names)
        return f"Encoding({columns} columns, {features} features, target {self.target.column!r})"

    def __post_init__(self) -> None:
        names = [*self.columns, self.target.column]
        if len(set(names)) != len(names):
            raise InvalidInput("encoding: holds a column twice.")
        if not self.entries:
            raise InvalidInput("encoding: has no columns: must have at least one feature.")
        if len(set(self.feature_names)) != len(self.feature_names):
            raise InvalidInput(
                "encoding: two features would have the same name; rename the column whose name"
                " holds '=' or ends in 'is missing'."
            )
        if not _entries.finite("encoding.data_norm", self.data_norm) > 0:
            raise InvalidInput(f"encoding.data_norm={self.data_norm!r}: must be > 0.")
        self._check_histograms()

    def _check_histograms(self) -> None:
        """Refuse entries that are said to follow from a private release, and do not."""
        known = {} if self.histograms is None else self.histograms.entries()
        own: dict[str, Entry | None] = {
            entry.name: entry for entry in self.entries if entry.mark is Mark.PRIVATE
        }
        own |= {name: None for name, mark in self.dropped if mark is Mark.PRIVATE}
        # A person may give how missing cells are encoded.
        own = {name: _as_released(entry, known.get(name)) for name, entry in own.items()}
        if own != known:
            raise InvalidInput(
                "encoding: what is marked as released privately does not follow from its"
                " histograms; the file was edited."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of X."""
        return tuple(name for entry in self.entries for name in entry.features)

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """The constants that were read from the data, each as a part of a sentence."""
        parts = [part for entry in self.entries for part in entry.read_from_data]
        parts += [f"that {name!r} is constant" for name, mark in self.dropped if mark is Mark.READ]
        parts += self.target.read_from_data
        if self.data_norm_mark is Mark.READ:
            parts.append("the largest row norm")
        return tuple(parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns except the target: those encoded, then those left out."""
        return (*(entry.name for entry in self.entries), *(name for name, _ in self.dropped))

    @property
    def is_positional(self) -> bool:
        """Whether the columns are those of an array, which has no names (x0, x1, …)."""
        return set(self.columns) == set(position_names(len(self.columns)))

    @property
    def notices(self) -> tuple[str, ...]:
        """Notes on possibly unintended effects, each a sentence."""
        return tuple(
            f"column {name!r}: is constant, so it is left out."
            for name, mark in self.dropped
            if mark is Mark.READ
        )

    @property
    def audience(self) -> Audience:
        """NEEDS_REVIEW with constants that were read from the data or seeded, else PUBLIC."""
        seeded = self.histograms is not None and self.histograms.seeded
        return Audience.NEEDS_REVIEW if self.read_from_data or seeded else Audience.PUBLIC

    @classmethod
    def read(
        cls,
        table: Table,
        *,
        target: str,
        classes: Sequence[Any] | None = None,
        regression: bool = False,
        given: "Encoding | Mapping[str, Any] | str | Path | None" = None,
        release: ReleaseHistograms | None = None,
    ) -> "Encoding":
        """Return the encoding of ``table``: the ``given`` constants, the others read from the data.

        Parameters
        ----------
        table : Table
            The rows, at least two.
        target : str
            The column to predict.
        classes : Sequence[Any], optional
            Its labels, of two the first one becomes −1; by default the sorted labels of the data.
        regression : bool, default=False
            Whether the target is a number.
        given : Encoding | Mapping[str, Any] | str | Path, optional
            A complete encoding, which is returned unchanged; or a part of one, in the form of
            ``encoding.json``: any members of {"columns": {"age": {"mean": 40, "scale": 15}, "sex":
            {"levels": ["f", "m"]}}, "dropped": ["name"], "target": {"classes": ["no", "yes"]},
            "data_norm": 5}; or the path of either.
        release : callable, optional
            Releases noisy histograms of some columns. The constants that are not given then follow
            from them, and only the classes are read from the data.

        Returns
        -------
        Encoding
            Each constant has a mark of its origin.

        Raises
        ------
        InvalidInput
            If the table cannot be encoded, or the given part contradicts it.

        Warns
        -----
        PrivacyLeakWarning
            If a constant was read from the data.
        """
        given = given_encoding({} if given is None else given)
        if isinstance(given, Encoding):
            if release is not None:
                raise InvalidInput(
                    "private_encoding: the given encoding is whole, so nothing is to be released;"
                    " leave private_encoding out, or give ranges and levels alone."
                )
            given._check(table, target=target, classes=classes, regression=regression)
            _reading.warn_of_leak(given.read_from_data)
            return given
        part = _reading.Given.from_json(given)
        part = part.with_target(target, classes, regression)
        histograms = None
        if release is not None:
            histograms = release(table, _reading.countable_columns(table, target, part))
        released = None if histograms is None else histograms.entries()
        entries, dropped = _reading.read_columns(table, target, part, released)
        goal = _reading.read_target(table, target, part, regression=regression)
        encoding = cls(
            entries=tuple(entries),
            target=goal,
            data_norm=default_norm(len(entries)) if part.data_norm is None else part.data_norm,
            data_norm_mark=Mark.RULE if part.data_norm is None else Mark.GIVEN,
            missing=table.missing,
            dropped=tuple(dropped),
            histograms=histograms,
        )
        _reading.warn_of_leak(encoding.read_from_data)
        return encoding

    def open(self, source: Any, *, id_column: str | None = None, **options: Any) -> Table:
        """Open ``source`` with the columns, kinds and missing tokens of this encoding.

        Parameters
        ----------
        source : Any
            A source of :func:`open_table`.
        id_column : str, optional
            The column of the ids.
        **options : Any
            Further options of :func:`open_table`.

        Returns
        -------
        Table
            The table.

        Raises
        ------
        InvalidInput
            If the source cannot be read, or lacks a column.
        """
        kinds = self.kinds if self.histograms is None else self.histograms.kinds | self.kinds
        return open_table(
            source,
            columns=[*kinds],
            kinds=kinds,
            id_column=id_column,
            missing=self.missing,
            **options,
        )

    def encode(self, block: Any, *, first_row: int = 1) -> Encoded:
        """Encode a block of :meth:`Table.blocks`.

        Parameters
        ----------
        block : pyarrow.RecordBatch
            An Arrow record batch with all columns of the encoding.
        first_row : int, default=1
            The number of its first row, for messages.

        Returns
        -------
        Encoded
            The rows, without ids.

        Raises
        ------
        InvalidInput
            If a column is absent or of another kind, or a cell cannot be encoded.
        """
        X, unknown = self._features(block, first_row)
        labels = self._cells(block, self.target.column, self.target.kind)
        return Encoded(
            X=X,
            y=self.target.encode(labels, first_row),
            ids=None,
            feature_names=self.feature_names,
            unknown=unknown,
        )

    def encode_features(self, X: Any) -> FloatArray:
        """Return the features of rows without labels.

        Parameters
        ----------
        X : Any
            A frame with the columns of the encoding, or an array (n, columns).

        Returns
        -------
        FloatArray
            (n, d) the features.

        Raises
        ------
        InvalidInput
            If a column is absent, or a cell cannot be encoded.
        """
        kinds = {entry.name: entry.kind for entry in self.entries}
        table = open_table(frame_of(X), columns=[*kinds], kinds=kinds, missing=self.missing)
        features, row = np.empty((table.rows, len(self.feature_names))), 0
        for block in table.blocks(columns=[*kinds]):
            stop = row + block.num_rows
            features[row:stop], _ = self._features(block, row + 1)
            row = stop
        return features

    def _features(self, block: Any, first_row: int) -> tuple[FloatArray, dict[str, int]]:
        """Return the features of a block, and by column the number of cells that are no level."""
        # By columns, and transposed at once: a column of a matrix by rows is slow to write.
        features, unknown = np.empty((len(self.feature_names), block.num_rows)), {}
        column = 0
        for entry in self.entries:
            cells = self._cells(block, entry.name, entry.kind)
            width = len(entry.features)
            count = entry.encode(cells, first_row, features[column : column + width])
            column += width
            if count:
                unknown[entry.name] = count
        return np.ascontiguousarray(features.T), unknown

    def blocks(self, table: Table, size: int | None = None) -> Iterator[Encoded]:
        """Yield the encoded rows of a table in order, in blocks.

        Parameters
        ----------
        table : Table
            The table, with all columns of the encoding.
        size : int, optional
            The number of rows of each block but the last; by default as many as fit into 8 MiB, and
            at least 64.

        Yields
        ------
        Encoded
            The rows of a block, with their ids.
        """
        table = table.retyped(self.kinds)
        size = max(64, _BLOCK_ENTRIES // len(self.feature_names)) if size is None else size
        key = table.id_column
        wanted = [*self.kinds, *([] if key is None else [key])]
        row = 1
        for block in table.blocks(size, columns=wanted):
            encoded = self.encode(block, first_row=row)
            if key is not None:
                ids = np.array(block.column(key).to_pylist(), dtype=object)
                encoded = replace(encoded, ids=ids)
            yield encoded
            row += block.num_rows

    def encode_table(self, table: Table) -> Encoded:
        """Return all encoded rows of ``table``.

        Parameters
        ----------
        table : Table
            The table, with all columns of the encoding.

        Returns
        -------
        Encoded
            The rows, with their ids.
        """
        X = np.empty((table.rows, len(self.feature_names)))
        y = np.empty(table.rows)
        ids = None if table.id_column is None else np.empty(table.rows, dtype=object)
        unknown: dict[str, int] = {}
        row = 0
        for block in self.blocks(table):
            rows = slice(row, row + len(block.y))
            X[rows], y[rows] = block.X, block.y
            if ids is not None:
                ids[rows] = block.ids
            for name, count in block.unknown.items():
                unknown[name] = unknown.get(name, 0) + count
            row += len(block.y)
        return Encoded(X=X, y=y, ids=ids, feature_names=self.feature_names, unknown=unknown)

    def as_given(self) -> "Encoding":
        """Return the encoding with all constants marked as given. Only for public constants.

        Returns
        -------
        Encoding
            The encoding, which warns of nothing.
        """
        return Encoding.from_json(_marked(self.to_json(), Mark.READ, Mark.GIVEN))

    def uncut(self) -> "Encoding":
        """Return the encoding without cuts of numbers, for models that are not private.

        Returns
        -------
        Encoding
            The encoding; constants of a private release are marked as read from the data.
        """
        json = _marked(self.to_json(), Mark.PRIVATE, Mark.READ)
        json.pop("histograms", None)
        for entry in json["columns"].values():
            entry |= dict.fromkeys({"cut"} & entry.keys())
        return Encoding.from_json(json)

    def save(self, path: str | Path) -> Path:
        """Write ``encoding.json``; only its owner can read it if a constant was read from the data.

        Parameters
        ----------
        path : str | Path
            The path of the file.

        Returns
        -------
        Path
            The path that was written.
        """
        return atomic.write_json(path, self.audience, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Encoding":
        """Read an encoding that :meth:`save` wrote.

        Parameters
        ----------
        path : str | Path
            The path of the file.

        Returns
        -------
        Encoding
            The encoding that was written.

        Raises
        ------
        InvalidInput
            If the file is anything else.
        """
        value = atomic.read_json(path)
        try:
            return cls.from_json(value)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON values, each constant with its origin.

        Returns
        -------
        dict[str, Any]
            The content of ``encoding.json``.
        """
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "missing": list(self.missing),
            "target": self.target.to_json(),
            "columns": {entry.name: entry.to_json() for entry in self.entries},
            "dropped": {name: mark.value for name, mark in self.dropped},
            "data_norm": {"value": self.data_norm, "origin": self.data_norm_mark.value},
            # The order of the features is the order of θ. It is repeated here to detect a tool that
            # sorted the members of "columns".
            "features": list(self.feature_names),
            **({} if self.histograms is None else {"histograms": self.histograms.to_json()}),
        }

    @classmethod
    def from_json(cls, value: Any) -> "Encoding":
        """Invert :meth:`to_json`; refuse any other value.

        Parameters
        ----------
        value : Any
            The JSON values.

        Returns
        -------
        Encoding
            The encoding that was written.

        Raises
        ------
        InvalidInput
            If ``value`` is anything else.
        """
        _check_version(value)
        keys = ("format", "version", "missing", "target", "columns", "dropped", "data_norm")
        fields = _entries.members(
            "encoding", value, required=(*keys, "features"), optional=("histograms",)
        )
        released = fields.get("histograms")
        columns = _object("columns", fields["columns"])
        dropped = _object("dropped", fields["dropped"])
        missing = fields["missing"]
        if not isinstance(missing, list) or not all(isinstance(token, str) for token in missing):
            raise InvalidInput("encoding.missing: must be a list of strings.")
        norm = _entries.members("data_norm", fields["data_norm"], required=("value", "origin"))
        encoding = cls(
            entries=tuple(
                _entries.entry_from_json(name, entry, strict=True)
                for name, entry in columns.items()
            ),
            target=Target.from_json(fields["target"]),
            data_norm=_entries.finite("data_norm.value", norm["value"]),
            data_norm_mark=_entries.mark("data_norm.origin", norm["origin"]),
            missing=tuple(missing),
            dropped=tuple(
                (name, _entries.mark(f"dropped[{name!r}]", mark)) for name, mark in dropped.items()
            ),
            histograms=None if released is None else Histograms.from_json(released),
        )
        if fields["features"] != list(encoding.feature_names):
            raise InvalidInput(
                "encoding.features: does not list the features of 'columns' in their order; restore"
                " the file as it was written."
            )
        return encoding

    @property
    def kinds(self) -> dict[str, Kind]:
        """The columns of the table, and the kind of each."""
        kinds = {entry.name: entry.kind for entry in self.entries}
        return kinds | {self.target.column: self.target.kind}

    def _cells(self, block: Any, name: str, kind: Kind) -> Any:
        if name not in block.schema.names:
            raise InvalidInput(f"column {name!r}: is not in the table, but the encoding needs it.")
        cells = block.column(name)
        if str(cells.type) != ("double" if kind == "numeric" else "string"):
            raise InvalidInput(
                f"column {name!r}: is read as {cells.type}, but the encoding needs it {kind}; open"
                " the table with encoding.open(…)."
            )
        return cells

    def _check(
        self, table: Table, *, target: str, classes: Sequence[Any] | None, regression: bool
    ) -> None:
        """Raise unless this is an encoding of ``table`` and of this target."""
        wanted = None if classes is None else _entries.class_labels("classes", classes)
        mine = self.target
        if mine.column != target or (mine.classes is None) != regression:
            raise InvalidInput(
                f"target={target!r}: the given encoding is for {mine.column!r} as a"
                f" {'number' if mine.classes is None else 'class'}; name that, or give another."
            )
        if wanted is not None and wanted != mine.classes:
            raise InvalidInput(
                f"classes={list(wanted)!r}: the given encoding has {mine.classes}; leave them out."
            )
        table.require(self.kinds)
        _reading.check_rows(table)
        if mine.classes is not None:
            _reading.check_classes(table.retyped({target: "text"}), target, mine.classes)


def _as_released(entry: Entry | None, released: Entry | None) -> Entry | None:
    """Return ``entry`` with the released encoding of missing cells, where its own was given."""
    if isinstance(entry, NumericEntry) and isinstance(released, NumericEntry):
        # A unit changes no number.
        entry = replace(entry, unit=None)
        if entry.fill_mark is not Mark.GIVEN:
            return entry
        return replace(entry, fill=released.fill, fill_mark=released.fill_mark)
    if isinstance(entry, LevelEntry) and isinstance(released, LevelEntry):
        own = entry.missing_mark is not Mark.GIVEN
        return entry if own else replace(entry, missing_mark=released.missing_mark)
    return entry


def _marked(json: dict[str, Any], old: Mark, new: Mark) -> dict[str, Any]:
    """Return an encoding's JSON with one mark in the place of another."""
    parts = (*json["columns"].values(), json["target"], json["data_norm"])
    for part in parts:
        part.update({key: new.value for key in part if part[key] == old.value and "origin" in key})
    json["dropped"] = {
        name: new.value if mark == old.value else mark for name, mark in json["dropped"].items()
    }
    return json


def given_encoding(value: Any) -> Encoding | dict[str, Any]:
    """Return a given encoding: a complete one, or a part as JSON.

    Parameters
    ----------
    value : Encoding | Mapping[str, Any] | str | Path
        An encoding, its JSON or a part of that, or the path of either.

    Returns
    -------
    Encoding | dict[str, Any]
        The encoding, or the JSON object of a part.

    Raises
    ------
    InvalidInput
        If it is none of these.
    """
    if isinstance(value, Encoding):
        return value
    json = atomic.read_json(Path(value)) if isinstance(value, str | Path) else value
    if not isinstance(json, Mapping):
        raise InvalidInput(
            "encoding: must be an Encoding, its JSON object, or the path of an encoding.json."
        )
    if "format" not in json:
        return dict(json)
    return Encoding.load(value) if json is not value else Encoding.from_json(json)


def open_encoded(
    source: Any,
    *,
    target: str,
    classes: Sequence[Any] | None,
    regression: bool,
    given: Encoding | Mapping[str, Any] | None,
    missing: Sequence[str] = MISSING,
    columns: Sequence[str] | None = None,
    limited: Callable[[Table], Table] = lambda table: table,
    release: ReleaseHistograms | None = None,
    **keys: Any,
) -> tuple[Table, Encoding]:
    """Open a table and determine its encoding, without holding rows in memory.

    A complete encoding also determines which cells are missing and which columns are read. Classes
    are sorted, as in the estimators, so that θ and y agree.

    Parameters
    ----------
    source : Any
        As in :func:`open_table`.
    target : str
        As in :meth:`Encoding.read`.
    classes : Sequence[Any] | None
        As in :meth:`Encoding.read`.
    regression : bool
        As in :meth:`Encoding.read`.
    given : Encoding | Mapping[str, Any] | None
        As in :meth:`Encoding.read`.
    missing : Sequence[str], default=MISSING
        As in :func:`open_table`.
    columns : Sequence[str], optional
        As in :func:`open_table`.
    limited : callable, optional
        A function that selects rows of the opened table.
    release : callable, optional
        As in :meth:`Encoding.read`.
    **keys : Any
        Further options of :func:`open_table`.

    Returns
    -------
    table : Table
        The table.
    encoding : Encoding
        Its encoding.

    Raises
    ------
    InvalidInput
        If the table cannot be read or encoded.
    """
    if isinstance(given, Encoding):
        table = limited(given.open(source, **keys))
    else:
        table = limited(open_table(source, columns=columns, missing=missing, **keys))
    encoding = Encoding.read(
        table,
        target=target,
        classes=classes,
        regression=regression,
        given=given,
        release=release,
    )
    goal = encoding.target
    if goal.classes is not None:
        goal = replace(goal, classes=tuple(sorted(goal.classes)))
    return table, replace(encoding, target=goal)


def _check_version(value: Any) -> None:
    if not isinstance(value, Mapping) or value.get("format") != _FORMAT:
        raise InvalidInput(f"encoding: was not written by expost (its format must be {_FORMAT!r}).")
    version = value.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidInput("encoding.version: must be an integer of at least 1.")
    if version != _VERSION:
        older = version < _VERSION
        raise InvalidInput(
            f"encoding.version={version}: was written by {'an older' if older else 'a newer'}"
            f" expost, this one reads {_VERSION};"
            f" {'make the encoding again' if older else 'upgrade expost'}."
        )


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"encoding.{name}: must be a JSON object.")
    return value
