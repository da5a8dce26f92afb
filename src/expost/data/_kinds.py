"""What kind a column is, from one look at all of its cells.

A look is five aggregates a column, all columns in one query: present (not missing), numbers, low,
high and infinite. A column is looked at again only if something about it must be explained: its
cells are numbers in part, or past 2⁵³.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from expost.data import _sql
from expost.data._raw import Origin, RawColumn
from expost.errors import InvalidInput

__all__ = ["Column", "ColumnSummary", "Kind"]

Kind = Literal["numeric", "text", "boolean"]

# Squares and products of two entries must not overflow (as in _validate).
_LARGEST = 1e150
_LONGEST = 2**53
_NOT_FINITE = "[+-]?(nan|inf|infinity)"
# Tokens that commonly mean "missing"; others are never shown, they may be somebody's.
_USUAL_TOKENS = frozenset(
    {"", "?", "-", "--", ".", "*", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing"}
)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: its kind, how many of its cells are missing, and its range.

    ``low`` and ``high`` are of a numeric column's cells that are not missing (0 if there are
    none); ``notice`` says what a person may not have meant, or is empty.
    """

    name: str
    kind: Kind
    missing: int
    low: float = field(default=0.0, repr=False)
    high: float = field(default=0.0, repr=False)
    notice: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """One column, looked at; ``asked`` is its kind where that is known beforehand."""

    origin: Origin
    raw: RawColumn
    missing: tuple[str, ...]
    asked: Kind | None

    def __post_init__(self) -> None:
        declared = "text" if self.raw.categorical else self.raw.type
        possible = {
            "cell": ("numeric", "text"),
            "mixed": ("numeric", "text"),
            "text": ("numeric", "text"),
            "integer": ("numeric", "text"),
            "float": ("numeric", "text"),
            "boolean": ("boolean", "text"),
        }.get(declared)
        if possible is None:
            _sql.text(self.raw, ())  # raises: the type cannot be used
        elif self.asked is not None and self.asked not in possible:
            raise InvalidInput(
                f"column {self.raw.name!r}: is of type {self.raw.described}: cannot be read as"
                f" {self.asked}; must be one of {', '.join(possible)}."
            )

    @property
    def _family(self) -> Literal["cells", "integer", "float", "plain"]:
        """How the column is looked at; plain: only its missing cells are counted."""
        if self.raw.type in ("integer", "float"):
            as_text = self.asked == "text" or (self.raw.categorical and self.asked is None)
            return "plain" if as_text else "integer" if self.raw.type == "integer" else "float"
        guessed = self.raw.type in ("cell", "mixed") and self.asked is None
        return "cells" if guessed or self.asked == "numeric" else "plain"

    def stages(self, index: int) -> tuple[list[str], list[str], list[str]]:
        """Expressions over the relation, and twice over those before.

        At the end t is the cell, w its value as a DOUBLE if it has one, v that value if it is a
        finite number; each name ends in ``index``.
        """
        t, w, v = f"t{index}", f"w{index}", f"v{index}"
        cell = f"{_sql.text(self.raw, self.missing)} AS {t}"
        match self._family:
            case "cells":
                value, test = f"TRY_CAST({t} AS DOUBLE)", _sql.is_number(t, w)
            case "plain":
                value, test = "CAST(NULL AS DOUBLE)", "false"
            case "integer" | "float":
                number = f"{_sql.number(self.raw, self.missing)} AS {w}"
                finite = f"CASE WHEN isfinite({w}) THEN {w} END AS {v}"
                return [f"{self.raw.sql} AS {t}", number], [t, w], [t, w, finite]
        return [cell], [t, f"{value} AS {w}"], [t, w, f"CASE WHEN {test} THEN {w} END AS {v}"]

    def aggregates(self, index: int) -> list[str]:
        """The five aggregates over the last stage."""
        t, w, v = f"t{index}", f"w{index}", f"v{index}"
        present = w if self._family in ("integer", "float") else t
        return [
            f"count({present})",
            f"count({v})",
            f"min({v})",
            f"max({v})",
            f"count(CASE WHEN isinf({w}) THEN 1 END)",
        ]

    def judge(self, rows: int, figures: Sequence[Any]) -> Column:
        """The column that the five ``figures`` show, or :class:`InvalidInput`."""
        present, numbers, infinite = int(figures[0]), int(figures[1]), int(figures[4])
        low, high = (0.0 if figure is None else float(figure) for figure in figures[2:4])
        name, missing = self.raw.name, rows - present
        match self._family:
            case "plain":
                boolean = self.raw.type == "boolean" and self.asked != "text"
                kind: Kind = "boolean" if boolean and not self.raw.categorical else "text"
                return Column(name=name, kind=kind, missing=missing)
            case "cells":
                if numbers < present or (present == 0 and self.asked is None):
                    notice = self._explain(present, numbers, infinite)
                    return Column(name=name, kind="text", missing=missing, notice=notice)
            case "integer" | "float":
                if infinite:
                    raise self._fault("isinf({w})", "is infinite: must be finite; drop or fill it")
                if numbers < present:
                    raise self._fault(
                        "isnan({w})",
                        "is NaN: a missing cell must be null (None; .fill_nan(None) in polars)",
                    )
        self._check_size(low, high)
        return Column(name=name, kind="numeric", missing=missing, low=low, high=high)

    @property
    def _where(self) -> str:
        return f"{self.origin.relation.label}, column {self.raw.name!r}"

    def _check_size(self, low: float, high: float) -> None:
        """Integers are exact in float64, and squares do not overflow."""
        largest = max(-low, high)
        if largest >= _LONGEST and self._family != "float":
            whole = "t0" if self._family == "integer" else "TRY_CAST(t0 AS HUGEINT)"
            # A float written out, 1e20 or 12345678901234567890.5, is what it says.
            shape = "true" if self._family == "integer" else "regexp_full_match(t0, '[+-]?[0-9]+')"
            past = f"coalesce({whole} > {_LONGEST} OR {whole} < -{_LONGEST}, true)"
            condition = f"abs(v0) >= {_LONGEST} AND {shape} AND {past}"
            if self._first_row(condition) is not None:
                raise self._fault(
                    condition,
                    "is an integer past 2**53, which float64 cannot tell from its neighbours;"
                    " rescale the column, leave it out, or name it as the id column",
                )
        if not largest <= _LARGEST:
            raise self._fault(
                f"abs({{v}}) > {_LARGEST}",
                f"is too large: must be at most {_LARGEST:g} in magnitude; rescale the column",
            )

    def _explain(self, present: int, numbers: int, infinite: int) -> str:
        """The notice of a column that is numeric in part; raises where it should be throughout."""
        if numbers == 0 and infinite == 0 and self.asked is None:
            return ""
        words, overflow, first, last = self.origin.relation.one(
            [
                f"count(CASE WHEN regexp_full_match(lower(t0), '{_NOT_FINITE}') THEN 1 END)",
                "count(CASE WHEN isinf(w0) AND regexp_matches(t0, '[0-9]') THEN 1 END)",
                "min(CASE WHEN v0 IS NULL THEN t0 END)",
                "max(CASE WHEN v0 IS NULL THEN t0 END)",
            ],
            *self.stages(0),
        )
        if numbers == 0 and overflow == 0 and self.asked is None:
            return ""
        others = present - numbers
        not_number = "{t} IS NOT NULL AND {v} IS NULL"
        if others == words + overflow:
            what = "is not a finite number" if words else "is too large for float64"
            raise self._fault(
                not_number,
                f"{what}: every number must be; rescale the column, or declare the cell missing"
                " (missing=…)",
            )
        token = first if first == last and str(first).lower() in _USUAL_TOKENS else None
        hint = "" if token is None else f"; if {token!r} means missing, declare it so (missing=…)"
        if self.asked == "numeric":
            raise self._fault(
                not_number,
                f"is not a number ({others} of {present} cells are not), and the column was"
                f" declared numeric{hint}",
            )
        return (
            f"column {self.raw.name!r}: {others} of {present} cells are not numbers, so it is read"
            f" as text{hint}."
        )

    def _fault(self, condition: str, what: str) -> InvalidInput:
        """The error about the first row where ``condition`` on {t}, {w} and {v} holds."""
        row = self._first_row(condition.format(t="t0", w="w0", v="v0"))
        at = "" if row is None else f", row {row}"
        return InvalidInput(f"{self._where}{at}: {what}.")

    def _first_row(self, condition: str) -> int | None:
        return self.origin.relation.first_row(condition, *self.stages(0))
