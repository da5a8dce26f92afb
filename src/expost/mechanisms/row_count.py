"""What a DP-SGD run makes of the number of rows: the divisor, the sampling rate, a noisy count.

Conventions
-----------
n, n'    the number of rows of two neighbouring data sets; m, m' the divisors that follow from them.
s        the standard deviation of the noise on a sum of gradients; a step uses the sum over m.

The noise of what a step uses is s/m. If m is computed from n, it is s/m' for the neighbour: the two
laws differ in every one of d coordinates, for every sample of rows. With κ = m/m', or m'/m, the
step alone gives in expectation

    (d/2)·(κ² − 1 − ln κ²) ≈ d·(κ − 1)²   nats                                             (1)

of evidence for the truth: the KL divergence of N(0, a²I) from N(0, b²I), a/b = κ (m'/m if the row
is there, m/m' if not). It adds up over the steps, and sampling does not amplify it. The proof of
the ε of DP-SGD takes m and q for constants, so one of three things must hold: n is public, m and q
are fixed without the data, or they follow from a noisy n that is paid for once.
"""

import math
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from expost import _checks
from expost.errors import InvalidInput, SeededReleaseWarning
from expost.notices import warn
from expost.numbers import count, nats, number
from expost.risk import EpsilonDelta, Guarantee

__all__ = ["NoisyCount", "RowCount", "Scaling", "divisor_loss", "noisy_count"]

# A smaller ε would take too many draws and hide nothing less.
_LEAST_EPSILON, _MOST_EPSILON = 1e-4, 100.0
REMEDY = (
    "The guarantee needs the number of rows to be public (row_count='public'), a divisor and a"
    " sampling rate that do not depend on it (row_count='fixed'), or a noisy number of rows"
    " (row_count=expost.torch.noisy_count(…))."
)


class RowCount(Enum):
    """What is known of the number of rows, and of constants that follow from it.

    PUBLIC: everybody may know n. FIXED: the divisor and the sampling rate were chosen without the
    data. NOISY: they follow from a noisy n, which was released. UNKNOWN: none of these was stated.
    """

    PUBLIC = "public"
    FIXED = "fixed"
    NOISY = "noisy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """A number of rows released with two-sided geometric noise: ε-DP, for a row removed or added.

    Parameters
    ----------
    count : int
        n plus noise, at least 1; public.
    epsilon : float
        ε of the release.
    """

    count: int
    epsilon: float

    def __post_init__(self) -> None:
        _checks.integer("count", self.count, least=1)
        _checks.positive("epsilon", self.epsilon)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the release."""
        return EpsilonDelta(epsilon=self.epsilon)


def noisy_count(rows: int, *, epsilon: float, random_state: int | None = None) -> NoisyCount:
    """Release the number of rows with noise, for a sampling rate and a divisor to follow from.

    Parameters
    ----------
    rows : int
        n.
    epsilon : float
        ε of the release, between 1e-4 and 100. A row that is removed changes n by 1.
    random_state : int, optional
        A seed, for simulations. None draws from the operating system.

    Returns
    -------
    NoisyCount
        The public count. Pass it as ``row_count`` to :func:`expost.torch.track`, which adds its ε.

    Raises
    ------
    InvalidInput
        If an argument is invalid.

    Notes
    -----
    The noise is k with probability proportional to e^(−ε∣k∣), drawn exactly, by comparisons of
    integers (Canonne, Kamath and Steinke 2020, Alg. 1). Counts below 1 become 1.
    """
    rows = _checks.integer("rows", rows, least=1)
    epsilon = _checks.between("epsilon", epsilon, _LEAST_EPSILON, _MOST_EPSILON)
    below: Callable[[int], int] = secrets.randbelow
    if random_state is not None:
        warn(
            "random_state is set: anyone who knows the seed can remove the noise; use None for a"
            " real release.",
            SeededReleaseWarning,
            stacklevel=2,
        )
        below = random.Random(random_state).randrange
    rate = Fraction(epsilon)
    noise = _geometric(rate, below) - _geometric(rate, below)
    return NoisyCount(count=max(rows + noise, 1), epsilon=epsilon)


def _geometric(rate: Fraction, below: Callable[[int], int]) -> int:
    """Return k ≥ 0 with probability proportional to e^(−rate·k)."""
    successes = 0
    while _exponential_coin(rate, below):
        successes += 1
    return successes


def _exponential_coin(rate: Fraction, below: Callable[[int], int]) -> bool:
    """Return True with probability e^(−rate), exactly."""
    whole, part = divmod(rate, 1)
    return all(_coin(Fraction(1), below) for _ in range(whole)) and _coin(part, below)


def _coin(rate: Fraction, below: Callable[[int], int]) -> bool:
    """Return True with probability e^(−rate), 0 ≤ rate ≤ 1: the parity of a run of coins."""
    k = 1
    while below(rate.denominator * k) < rate.numerator:
        k += 1
    return k % 2 == 1


def divisor_loss(dimension: int, divisor: float, other: float) -> float:
    """Return (1) in nats a step, for m = ``divisor`` and m' = ``other``; the row is there.

    Parameters
    ----------
    dimension : int
        d, the number of trained parameters.
    divisor, other : float
        The divisors of the two data sets.

    Returns
    -------
    float
        The expected evidence of one step, in nats.
    """
    _checks.integer("dimension", dimension, least=1)
    ratio = _checks.positive("other", other) / _checks.positive("divisor", divisor)
    above = (ratio - 1) * (ratio + 1)
    return 0.5 * dimension * (above - math.log1p(above))


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The constants of a run that may depend on the number of rows.

    Parameters
    ----------
    rows : int
        n.
    dimension : int
        d, the number of trained parameters.
    sampling_rate : float
        q; 1: full or public batches.
    divisor : float, optional
        m, by which noisy sums are divided; None: they are not.
    neighbour_divisor : float, optional
        m' of neighbouring data, the one that reveals most, where it is known how m is computed
        from n.
    source : str
        Where m and q come from.
    row_count : RowCount, default=RowCount.UNKNOWN
        What is known of n.
    noisy : NoisyCount, optional
        The noisy n that m and q follow from, where ``row_count`` is NOISY.
    remedy : str, optional
        What to do where nothing is known of n.
    rows_per_person : int, default=1
        By how many rows neighbouring data sets differ at most.
    """

    rows: int
    dimension: int
    sampling_rate: float
    divisor: float | None
    source: str
    neighbour_divisor: float | None = None
    row_count: RowCount = RowCount.UNKNOWN
    noisy: NoisyCount | None = None
    remedy: str = REMEDY
    rows_per_person: int = 1

    @classmethod
    def parse(
        cls, value: "str | RowCount | NoisyCount | None"
    ) -> tuple[RowCount, NoisyCount | None]:
        """Return what an option ``row_count`` states.

        Parameters
        ----------
        value : str | RowCount | NoisyCount | None
            The option.

        Returns
        -------
        tuple[RowCount, NoisyCount | None]
            What is known of n, and the noisy count if there is one.

        Raises
        ------
        InvalidInput
            If it states nothing that is known.
        """
        if value is None:
            return RowCount.UNKNOWN, None
        if isinstance(value, NoisyCount):
            return RowCount.NOISY, value
        stated = (RowCount.PUBLIC, RowCount.FIXED)
        for member in stated:
            if value in (member, member.value):
                return member, None
        raise InvalidInput(
            f"row_count={value!r}: must be 'public', 'fixed' or what noisy_count(…) returned."
        )

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the noisy count, which comes on top of that of the steps.

        k rows that leave at once change n by k, and e^(−ε∣noise∣) by a factor of e^(kε) at most.
        """
        if self.noisy is None:
            return None
        return EpsilonDelta(epsilon=self.rows_per_person * self.noisy.epsilon)

    @property
    def loss(self) -> float | None:
        """The expected nats a step that the divisor alone reveals (1), where m' is known."""
        if self.divisor is None or self.neighbour_divisor is None:
            return None
        if not self.neighbour_divisor > 0:
            return math.inf
        return divisor_loss(self.dimension, self.divisor, self.neighbour_divisor)

    @property
    def notice(self) -> str | None:
        """What the reader must know of the divisor; None where n cannot leak through it."""
        if self.row_count is RowCount.NOISY and self.noisy is not None:
            paid, k = number(self.noisy.epsilon, "up"), self.rows_per_person
            most = number(k * self.noisy.epsilon, "up")
            of = "row" if k == 1 else f"person with up to {count(k)} rows, {count(k)} times its ε"
            return (
                f"A noisy number of rows was released with ε = {paid}, which the guarantees here"
                f" include: it adds at most {nats(most)} to the exposure of each {of}."
            )
        if self.row_count is not RowCount.UNKNOWN:
            return None
        return " ".join(part for part in (self._unstated, self._leak, self.remedy) if part)

    @property
    def _unstated(self) -> str:
        rate = f"sampling rate {number(self.sampling_rate)}"
        if self.divisor is None:
            return f"The guarantee takes the {rate} for a constant. It comes from {self.source}."
        return (
            f"The guarantee takes the divisor {number(self.divisor)} and the {rate} for constants."
            f" They come from {self.source}."
        )

    @property
    def _leak(self) -> str:
        if not self.loss or self.neighbour_divisor is None:
            return ""
        changed, of = "a row", "row"
        if self.rows_per_person > 1:
            changed, of = "the rows of a person", "person"
        return (
            f"With {changed} more or less the divisor can be {number(self.neighbour_divisor)},"
            f" which alone reveals {nats(number(self.loss, 'up', 2))} a step about every {of}."
        )

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield names and values for a page.

        Yields
        ------
        tuple[str, str]
            The name and the value.
        """
        divided = (
            "none: noisy sums are not divided" if self.divisor is None else number(self.divisor)
        )
        yield "divisor of the noisy sum", divided
        yield "sampling rate (q)", number(self.sampling_rate)
        yield "divisor and rate come from", self.source
        stated = {
            RowCount.PUBLIC: f"{count(self.rows)}, stated to be public",
            RowCount.FIXED: f"{count(self.rows)}; divisor and rate are stated not to depend on it",
            RowCount.NOISY: f"{count(self.rows)}; released with noise",
            RowCount.UNKNOWN: f"{count(self.rows)}; not stated whether it is public",
        }
        yield "number of rows", stated[self.row_count]
