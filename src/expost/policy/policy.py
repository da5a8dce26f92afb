"""``policy.toml``: its schema, and a strict reader of it.

Every key of the file is a limit (:mod:`expost.policy.quantities`). The reader refuses a key that it
does not know, so that a misspelt limit is never skipped. ``--fail-on`` states one limit in an
expression.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expost import _checks
from expost.errors import InvalidInput
from expost.policy.quantities import (
    QUANTITIES,
    Limit,
    certainty,
    count,
    positive,
    probability,
    rate,
    zero_or_probability,
)
from expost.types import Audience

__all__ = ["FIGURES", "Limit", "Policy"]

# What is compared of an attack: the upper end of its confidence interval, or the estimate.
FIGURES = ("upper", "estimate")
_AUDIENCES = (Audience.PUBLIC.value, Audience.NEEDS_REVIEW.value)
# The δ at which releases are composed if the policy states none; that of `expost ledger`.
_COMPOSED_DELTA = 1e-5
# A policy is written by hand: a longer file is another one.
_LARGEST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The limits that results must satisfy.

    Parameters
    ----------
    limits : tuple[Limit, ...]
        The limits, each one line.
    figure : str, default="upper"
        What is compared of an attack: "upper", the upper end of its confidence interval, or
        "estimate".
    """

    limits: tuple[Limit, ...]
    figure: str = "upper"

    def __post_init__(self) -> None:
        if not self.limits:
            raise InvalidInput(
                "policy: states no limit, so every result would pass; state at least one, as"
                " [guarantee] epsilon = 1."
            )
        if len(set(self.limits)) != len(self.limits):
            raise InvalidInput("policy: states the same limit twice; remove one of them.")

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read a policy.toml, strictly.

        Parameters
        ----------
        path : str | Path
            The file.

        Returns
        -------
        Policy
            Its limits.

        Raises
        ------
        InvalidInput
            If the file cannot be read, is not TOML, or holds a key or a value that is not allowed.
        """
        path = Path(path)
        # A pipe would block, and a device has no end.
        if path.exists() and not path.is_file():
            raise InvalidInput(f"{path}: is not a file; name a policy.toml.")
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
        if len(content) > _LARGEST:
            raise InvalidInput(f"{path}: is longer than {_LARGEST:,} bytes; name a policy.toml.")
        try:
            return cls.from_toml(content.decode())
        except UnicodeDecodeError:
            raise InvalidInput(f"{path}: is not UTF-8; name a policy.toml.") from None
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @classmethod
    def from_toml(cls, text: str) -> "Policy":
        """Return the policy that a TOML document states.

        Parameters
        ----------
        text : str
            The document; docs/cli.md has the schema.

        Returns
        -------
        Policy
            Its limits.

        Raises
        ------
        InvalidInput
            If it is not TOML, or holds a key or a value that is not allowed.
        """
        try:
            tables = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidInput(f"is not TOML ({error}).") from None
        _check_keys("", tables, _SECTIONS)
        limits: list[Limit] = []
        for section, table in tables.items():
            keys = _SECTIONS[section]
            _check_keys(section, _table(section, table), keys)
            for key, value in table.items():
                limits += keys[key](f"{section}.{key}", value, table)
        figure = tables.get("attacks", {}).get("figure", "upper")
        return cls(limits=tuple(limits), figure=figure)

    @classmethod
    def of(cls, *expressions: str) -> "Policy":
        """Return the policy that fails on each of these expressions.

        Parameters
        ----------
        *expressions : str
            As "epsilon>1", "certainty@0.99>0.6" or "auc<0.8": fail if the quantity is beyond the
            number.

        Returns
        -------
        Policy
            One limit for each expression.

        Raises
        ------
        InvalidInput
            If an expression is not of this form.
        """
        return cls(limits=tuple(_expression(text) for text in expressions))

    def merged(self, other: "Policy | None") -> "Policy":
        """Return a policy with the limits of both.

        Parameters
        ----------
        other : Policy | None
            The policy to add; None adds nothing.

        Returns
        -------
        Policy
            A new policy, with the ``figure`` of this one.
        """
        if other is None:
            return self
        limits = tuple(dict.fromkeys((*self.limits, *other.limits)))
        return Policy(limits=limits, figure=self.figure)


# -- policy.toml ---------------------------------------------------------------------------------

# A reader of a key: of its name, its value and the table that it is in.
_Reader = Callable[[str, Any, Mapping[str, Any]], Iterator[Limit]]


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{name}: must be a table, as [{name}].")
    return value


def _check_keys(section: str, table: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a key that is not known, and suggest a known one."""
    for key in table:
        if key not in known:
            name = f"{section}.{key}" if section else key
            raise InvalidInput(
                f"{name}: is not a key of a policy; known are {', '.join(known)}."
                f"{_checks.did_you_mean(key, known)}"
            )


def _entries(name: str, value: Any, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tables of an array with their names; refuse other keys."""
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"{name}: must be a list of tables, as [{{ {keys[0]} = 0.5, … }}].")
    for index, entry in enumerate(value):
        place = f"{name}[{index}]"
        _check_keys(place, _table(place, entry), dict.fromkeys(keys))
        yield place, entry


def _required(name: str, entry: Mapping[str, Any], key: str) -> Any:
    if key not in entry:
        raise InvalidInput(f"{name}: lacks {key}; state it.")
    return entry[key]


def _plain(quantity: str) -> _Reader:
    """Return the reader of a key that holds one number."""
    check = QUANTITIES[quantity].check
    assert check is not None

    def limits(name: str, value: Any, _: Mapping[str, Any]) -> Iterator[Limit]:
        yield Limit(name=quantity, limit=check(name, value))

    return limits


def _composed(name: str, value: Any, table: Mapping[str, Any]) -> Iterator[Limit]:
    at = table.get("composed_delta", _COMPOSED_DELTA)
    delta = probability("guarantee.composed_delta", at)
    yield Limit(name="composed_epsilon", limit=positive(name, value), at=delta)


def _composed_delta(name: str, value: Any, table: Mapping[str, Any]) -> Iterator[Limit]:
    if "composed_epsilon" not in table:
        raise InvalidInput(f"{name}: belongs to composed_epsilon; state that too.")
    yield from ()


def _audience(name: str, value: Any, _: Mapping[str, Any]) -> Iterator[Limit]:
    yield Limit(name="audience", limit=_checks.one_of(name, value, _AUDIENCES))


def _quantiles(name: str, value: Any, _: Mapping[str, Any]) -> Iterator[Limit]:
    for place, entry in _entries(name, value, "share", "certainty"):
        level = probability(f"{place}.share", _required(place, entry, "share"))
        limit = certainty(f"{place}.certainty", _required(place, entry, "certainty"))
        yield Limit(name="certainty_quantile", limit=limit, at=level)


def _above(name: str, value: Any, _: Mapping[str, Any]) -> Iterator[Limit]:
    for place, entry in _entries(name, value, "certainty", "rows", "share"):
        level = certainty(f"{place}.certainty", _required(place, entry, "certainty"))
        if len(entry) == 1:
            raise InvalidInput(f"{place}: states no limit; add rows or share.")
        if "rows" in entry:
            limit = count(f"{place}.rows", entry["rows"])
            yield Limit(name="rows_above", limit=limit, at=level)
        if "share" in entry:
            limit = zero_or_probability(f"{place}.share", entry["share"])
            yield Limit(name="share_above", limit=limit, at=level)


def _attacks(name: str, value: Any, _: Mapping[str, Any]) -> Iterator[Limit]:
    known = _attack_names()
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"{name}: must be a list of attacks, as ['lira-online'].")
    for attack in value:
        yield Limit(name="attack", limit=_checks.one_of(name, attack, known))


def _attack_names() -> tuple[str, ...]:
    # Imported here: a policy without attacks needs none of them.
    from expost.auditing.attacks import ATTACKS, SIGNALS

    return (*ATTACKS, *SIGNALS)


def _true_positives(name: str, value: Any, _: Mapping[str, Any]) -> Iterator[Limit]:
    for place, entry in _entries(name, value, "fpr", "at_most"):
        level = rate(f"{place}.fpr", _required(place, entry, "fpr"))
        limit = zero_or_probability(f"{place}.at_most", _required(place, entry, "at_most"))
        yield Limit(name="attack_tpr", limit=limit, at=level)


def _figure(name: str, value: Any, table: Mapping[str, Any]) -> Iterator[Limit]:
    _checks.one_of(name, value, FIGURES)
    if not {"auc", "tpr"} & table.keys():
        raise InvalidInput(f"{name}: belongs to auc or tpr of [attacks]; state one of them.")
    yield from ()


_SECTIONS: dict[str, dict[str, _Reader]] = {
    "guarantee": {
        "epsilon": _plain("epsilon"),
        "delta": _plain("delta"),
        "composed_epsilon": _composed,
        "composed_delta": _composed_delta,
        "audience": _audience,
    },
    "rows": {
        "certainty": _plain("certainty"),
        "quantiles": _quantiles,
        "above": _above,
    },
    "utility": {"auc": _plain("auc"), "r2": _plain("r2")},
    "attacks": {
        "required": _attacks,
        "auc": _plain("attack_auc"),
        "tpr": _true_positives,
        "figure": _figure,
    },
    "evidence": {"age": _plain("age")},
}

# -- expressions ---------------------------------------------------------------------------------

_FORM = re.compile(r"\s*([a-z0-9_]+)\s*(?:@\s*([^<>=\s]+))?\s*(<=|>=|<|>|=+)\s*(\S+)\s*")
# What an expression can name.
_NAMED = {name: each for name, each in QUANTITIES.items() if each.short is not None}


def _expression(text: str) -> Limit:
    """Return the limit of an expression, as ``epsilon>1``."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"--fail-on {text!r}: must be a name, > or <, and a number, as 'epsilon>1' or"
            " 'certainty@0.99>0.6'."
        )
    short, level, sign, bound = match.groups()
    own = {name: each for name, each in _NAMED.items() if each.short == short}
    if not own:
        known = sorted({str(each.short) for each in _NAMED.values()})
        raise InvalidInput(
            f"--fail-on {text!r}: {short} is not known; known are {', '.join(known)}."
            f"{_checks.did_you_mean(short, known)}"
        )
    if short == QUANTITIES["composed_epsilon"].short and level is None:
        level = repr(_COMPOSED_DELTA)
    fitting = [name for name, each in own.items() if (each.level is None) == (level is None)]
    if not fitting:
        missing = next(iter(own.values())).level
        raise InvalidInput(
            f"--fail-on {text!r}: {short} has no level; leave out @{level}."
            if missing is None
            else f"--fail-on {text!r}: state the {missing} too, as '{short}@0.01{sign}{bound}'."
        )
    name, quantity = fitting[0], QUANTITIES[fitting[0]]
    right = "<" if quantity.least else ">"
    if sign != right:
        raise InvalidInput(
            f"--fail-on {text!r}: must fail on values {'below' if quantity.least else 'above'} the"
            f" limit; write {short}{'' if level is None else '@' + level}{right}{bound}."
        )
    where = f"--fail-on {text!r}: {short}"
    assert quantity.check is not None
    limit = quantity.check(where, _number(where, bound))
    if quantity.check_level is None or level is None:
        return Limit(name=name, limit=limit)
    return Limit(name=name, limit=limit, at=quantity.check_level(where, _number(where, level)))


def _number(where: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{where}: {text!r} is not a number.") from None
