"""The quantities that a policy limits, and the limits.

Conventions
-----------
certainty   the attacker's certainty about a row at a prior of 1/2: max(posterior, 1 − posterior).
share       a share of the rows, between 0 and 1.
at          the level that a limit belongs to: a share, a certainty, a δ or a false-positive rate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from expost import _checks
from expost.errors import InvalidInput

__all__ = [
    "QUANTITIES",
    "RATES",
    "Limit",
    "Quantity",
    "certainty",
    "count",
    "positive",
    "probability",
    "rate",
    "zero_or_probability",
]

# The false-positive rates at which an audit stores true-positive rates.
RATES = (0.01, 0.001)
# Past this an integer need not be a float64, and no table has so many rows.
_MOST_ROWS = 2**53


def positive(name: str, value: Any) -> float:
    """Return a finite number > 0."""
    return float(_checks.positive(name, value))


def probability(name: str, value: Any) -> float:
    """Return a number strictly between 0 and 1."""
    return float(_checks.probability(name, value))


def zero_or_probability(name: str, value: Any) -> float:
    """Return a share or a probability that may be 0."""
    return 0.0 if value == 0 and not isinstance(value, bool) else probability(name, value)


def certainty(name: str, value: Any) -> float:
    """Return a certainty from 1/2 to below 1."""
    level = probability(name, value)
    if not level >= 0.5:
        raise InvalidInput(
            f"{name}={value!r}: must be at least 0.5, which is the certainty of random guessing."
        )
    return level


def count(name: str, value: Any) -> float:
    """Return a number of rows, which ``--fail-on`` passes as a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    rows = _checks.integer(name, value, least=0)
    if rows > _MOST_ROWS:
        raise InvalidInput(f"{name}: is above {_MOST_ROWS:,}, so it limits nothing; lower it.")
    return float(rows)


def rate(name: str, value: Any) -> float:
    """Return a false-positive rate that an audit stores."""
    level = probability(name, value)
    if level not in RATES:
        raise InvalidInput(
            f"{name}={value!r}: must be {' or '.join(map(repr, RATES))}, the false-positive rates"
            " that an audit stores."
        )
    return level


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A figure that a policy limits.

    Parameters
    ----------
    key : str
        The key in policy.toml.
    text : str
        The limit in words; ``{limit}`` and ``{at}`` are filled in.
    source : str
        The result that answers it.
    public : bool
        Whether the measured value may be shown to anyone.
    least : bool
        Whether the limit is the least value that is allowed; else it is the largest.
    short : str, optional
        The name in an expression of ``--fail-on``; None: it has none.
    check : callable, optional
        Checks the limit and returns it as a float; None where it is a name.
    level, check_level : str | None, callable | None
        The name of the level, and its check; None where it has none.
    """

    key: str
    text: str
    source: str
    public: bool = False
    least: bool = False
    short: str | None = None
    check: Callable[[str, Any], float] | None = None
    level: str | None = None
    check_level: Callable[[str, Any], float] | None = None


_MODEL = "a model.json or report.json, or a public page of expost risk about one"
_PROFILE = "a folder that expost profile wrote"
_AUDIT = "a folder that expost audit wrote"
QUANTITIES = {
    "epsilon": Quantity(
        key="guarantee.epsilon",
        text="ε is at most {limit}",
        source=_MODEL,
        public=True,
        short="epsilon",
        check=positive,
    ),
    "delta": Quantity(
        key="guarantee.delta",
        text="δ is at most {limit}",
        source=_MODEL,
        public=True,
        short="delta",
        check=zero_or_probability,
    ),
    "composed_epsilon": Quantity(
        key="guarantee.composed_epsilon",
        text="ε of all releases in the ledger is at most {limit} at δ = {at}",
        source="the ledger of the data set",
        public=True,
        short="composed_epsilon",
        level="delta",
        check=positive,
        check_level=probability,
    ),
    "audience": Quantity(
        key="guarantee.audience",
        text="the audience of the released model is {limit}",
        source="a model.json or report.json",
        public=True,
    ),
    "certainty": Quantity(
        key="rows.certainty",
        text="the attacker's certainty about any row is at most {limit}",
        source=_PROFILE,
        short="certainty",
        check=certainty,
    ),
    "certainty_quantile": Quantity(
        key="rows.quantiles",
        text="the attacker's certainty is at most {limit} for a share of {at} of the rows",
        source=_PROFILE,
        short="certainty",
        level="share",
        check=certainty,
        check_level=probability,
    ),
    "rows_above": Quantity(
        key="rows.above",
        text="at most {limit} rows have a certainty above {at}",
        source=_PROFILE,
        short="rows",
        level="certainty",
        check=count,
        check_level=certainty,
    ),
    "share_above": Quantity(
        key="rows.above",
        text="at most a share of {limit} of the rows has a certainty above {at}",
        source=_PROFILE,
        short="share",
        level="certainty",
        check=zero_or_probability,
        check_level=certainty,
    ),
    "auc": Quantity(
        key="utility.auc",
        text="the AUC of the model is at least {limit}",
        source=f"{_PROFILE}, or expost epsilon",
        least=True,
        short="auc",
        check=probability,
    ),
    "r2": Quantity(
        key="utility.r2",
        text="R² of the model is at least {limit}",
        source=f"{_PROFILE}, or expost epsilon",
        least=True,
        short="r2",
        check=probability,
    ),
    "attack": Quantity(
        key="attacks.required", text="the attack {limit} was run", source=_AUDIT, public=True
    ),
    "attack_auc": Quantity(
        key="attacks.auc",
        text="the AUC of every attack is at most {limit}",
        source=_AUDIT,
        short="attack_auc",
        check=probability,
    ),
    "attack_tpr": Quantity(
        key="attacks.tpr",
        text="the TPR of every attack is at most {limit} at an FPR of {at}",
        source=_AUDIT,
        short="attack_tpr",
        level="fpr",
        check=zero_or_probability,
        check_level=rate,
    ),
    "age": Quantity(
        key="evidence.age",
        text="the age of the evidence is at most {limit} days",
        source="a folder with the summary of a result",
        public=True,
        short="age",
        check=positive,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One line of a policy: a quantity, its limit and the level that the limit belongs to.

    Parameters
    ----------
    name : str
        The quantity, one of ``QUANTITIES``.
    limit : float | str
        The largest or least value that is allowed, an audience, or the name of an attack.
    at : float, optional
        The level; None where the quantity has none.
    """

    name: str
    limit: float | str
    at: float | None = None

    @property
    def quantity(self) -> Quantity:
        """The quantity that is limited."""
        return QUANTITIES[self.name]

    @property
    def text(self) -> str:
        """The limit in words, with all its digits."""
        return self.quantity.text.format(limit=_shown(self.limit), at=_shown(self.at))


def _shown(value: float | str | None) -> str:
    """Return a limit as it is written, with all its digits: 10 for 10.0."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
