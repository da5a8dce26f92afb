"""The tables of an audit as rows of numbers: members, others, and rows of nobody's training.

Of a model that exists, its own encoding reads every table. Of an estimator the table of the rows in
question gives the encoding, and the target may have any number of classes: features are encoded
without it, beside a column of zeros in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from expost.data import Encoding, Table, open_table
from expost.errors import InvalidInput
from expost.jobs.table import MISSING
from expost.types import FloatArray

__all__ = ["EstimatorReader", "ModelReader", "Part", "Reader", "group_columns"]

# In place of a target of many classes; a column of this name would be in the way.
_NO_TARGET = "expost: no target"


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Rows of one table: ``X`` (n, d), ``labels`` (n,), and their keys."""

    X: FloatArray
    labels: NDArray[Any]
    ids: list[Any] | None
    notices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelReader:
    """Reads a table as a released model does."""

    encoding: Encoding
    id_column: str | None

    def read(self, source: Any, *, keyed: bool = True) -> Part:
        """The rows; without keys where nobody asks for them."""
        table = self.encoding.open(source, id_column=self.id_column if keyed else None)
        encoded = self.encoding.encode_table(table)
        goal = self.encoding.target
        labels = encoded.y if goal.classes is None else np.array(goal.labels(encoded.y))
        return Part(
            X=encoded.X,
            labels=labels,
            ids=None if encoded.ids is None else list(encoded.ids),
            notices=(*table.notices, *_unknown(encoded.unknown)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatorReader:
    """Reads tables alike: the first says how."""

    target: str
    id_column: str | None
    missing: tuple[str, ...]
    encoding: Encoding

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        target: str,
        id_column: str | None,
        drop: Sequence[str] | None,
        missing: Sequence[str] | None,
    ) -> "EstimatorReader":
        """The reader that the table of the rows in question makes."""
        tokens = MISSING if missing is None else tuple(missing)
        names = [column.name for column in open_table(source, columns=[]).origin.columns]
        for name in drop or ():
            if name not in names:
                raise InvalidInput(f"drop={name!r}: is not a column of the table; leave it out.")
            if name in (target, id_column):
                raise InvalidInput(f"drop={name!r}: is asked for; drop another column.")
        kept = [name for name in names if name not in (drop or ())]
        table = open_table(
            source, columns=kept, id_column=id_column, missing=tokens, kinds={target: "text"}
        )
        whole, _, _ = _split(table, target)
        encoding = Encoding.read(
            open_table(whole, missing=tokens), target=_NO_TARGET, regression=True
        )
        return cls(target=target, id_column=id_column, missing=tokens, encoding=encoding)

    def read(self, source: Any, *, keyed: bool = True) -> Part:
        """The rows; without keys where nobody asks for them."""
        kinds: dict[str, Any] = {entry.name: entry.kind for entry in self.encoding.entries}
        table = open_table(
            source,
            columns=[*kinds, self.target],
            id_column=self.id_column if keyed else None,
            missing=self.missing,
            kinds=kinds | {self.target: "text"},
        )
        whole, labels, ids = _split(table, self.target)
        encoded = self.encoding.encode_table(self.encoding.open(whole))
        notices = (*self.encoding.notices, *table.notices, *_unknown(encoded.unknown))
        return Part(X=encoded.X, labels=labels, ids=ids, notices=notices)


Reader = ModelReader | EstimatorReader


def _split(table: Table, target: str) -> tuple[Any, NDArray[Any], list[Any] | None]:
    """The features with zeros in place of the target, the labels, and the keys."""
    if target == table.id_column:
        raise InvalidInput(f"target={target!r}: is the id column; name another.")
    table.require([target])
    if _NO_TARGET in table.names:
        raise InvalidInput(f"column {_NO_TARGET!r}: is a name that expost uses; rename it.")
    whole = pa.Table.from_batches(table.blocks())
    cells = whole.column(target)
    if cells.null_count:
        raise InvalidInput(
            f"target {target!r}: is missing in {cells.null_count} of {table.rows} rows: every row"
            " needs one; drop these rows."
        )
    labels = np.array(cells.to_pylist(), dtype=np.str_)
    key = table.id_column
    ids = None if key is None else whole.column(key).to_pylist()
    features = whole.drop_columns([target, *([] if key is None else [key])])
    zeros = pa.array(np.zeros(table.rows))
    return features.append_column(_NO_TARGET, zeros), labels, ids


def _unknown(counts: Any) -> tuple[str, ...]:
    return tuple(
        f"column {name!r}: {count} cells hold no level of the encoding and count as none."
        for name, count in counts.items()
    )


def group_columns(
    names: Sequence[str], sources: Sequence[Any], missing: Sequence[str]
) -> dict[str, Any]:
    """Columns by which rows are grouped, those of all tables one below the other."""
    if not names:
        return {}
    wanted = list(dict.fromkeys(names))
    tables = [open_table(source, columns=wanted, missing=missing) for source in sources]
    # By class the attack is told anyhow, and under that name.
    shown = {name: f"column {name}" if name == "class" else name for name in wanted}
    return {shown[name]: _stacked([table.column(name) for table in tables]) for name in wanted}


def _stacked(parts: list[Any]) -> Any:
    if len({str(part.type) for part in parts}) > 1:
        # What is a number in one table and a text in another is a text.
        parts = [part.cast(pa.string()) for part in parts]
    return pa.concat_arrays(parts)
