"""DP-SGD: what the noisy gradients of one training run say of every row.

Conventions
-----------
g         a row's clipped gradient at the step's parameters, ∥g∥ ≤ C; g' that of the row which
          stands in for it (replace).
b         the step's noise, N(0, s²I): the step publishes (sum of the batch's g) + b, divided by
          a public constant. Parameters are a function of what was published before.
r         b + the row's own g if it was in the batch: the noisy sum less the other rows' gradients.
s         σC; where a row is replaced 2σC (global sensitivity), so that μ ≤ √steps/σ either way.
a(g)      (2r·g − ∥g∥²)/(2s²) = log N(r; g, s²I) − log N(r; 0, s²I).
transcript  all noisy sums of the run: what D5.3's strong adversary and a party in federated
          learning see.

The loss of a row for the transcript is the sum of its steps' terms, since given the past each
step is a Gaussian mechanism of its own:

    known batches    (2b·g + ∥g∥²)/(2s²) if the row was in the batch, else 0
                     replaced: the same with g − g' for g, = (∥b + g − g'∥² − ∥b∥²)/(2s²)
    hidden coin      log((1−q) + q·e^a(g)): the others' batches are known, this row's coin is not
                     replaced: log((1−q) + q·e^a(g)) − log((1−q) + q·e^a(g'))

(D5.3 Alg. 1, line 11, in logarithms, for every row at once.)
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from expost import _validate
from expost._numerics import ROUNDOFF
from expost.errors import ConvergenceError, InvalidInput
from expost.types import FloatArray, IntArray, Neighbouring

__all__ = ["SGDMechanism", "Transcript", "hidden_term", "step_rounding"]

# With this probability at most does a row's interval fail where steps were not looked at.
UNSEEN_FAILS = 1e-6


@dataclass(frozen=True, kw_only=True)
class SGDMechanism:
    """The public constants of a run of DP-SGD with noisy sums.

    ``rows``              n, which a batch size is not read from.
    ``noise_multiplier``  σ, the noise's standard deviation over the global sensitivity.
    ``clip``              C, the largest length of a row's gradient.
    ``sampling_rate``     q, each row's chance to be in a batch (Poisson); 1: full batch.
    ``relation``          REMOVE (sensitivity C) or REPLACE (2C).
    """

    rows: int
    noise_multiplier: float
    clip: float
    sampling_rate: float = 1.0
    relation: Neighbouring = Neighbouring.REMOVE

    def __post_init__(self) -> None:
        _validate.whole("rows", self.rows, least=1)
        _validate.positive("noise_multiplier", self.noise_multiplier)
        _validate.positive("clip", self.clip)
        if self.sampling_rate != 1:
            _validate.probability("sampling_rate", self.sampling_rate)
        object.__setattr__(self, "relation", Neighbouring.parse(self.relation))
        if self.relation is Neighbouring.ADD:
            raise InvalidInput("relation='add': DP-SGD is asked about rows; use remove or replace.")

    @property
    def sensitivity(self) -> float:
        """How far the sum of clipped gradients moves at most: C, or 2C where a row is replaced."""
        return self.clip if self.relation is Neighbouring.REMOVE else 2 * self.clip

    @property
    def noise_scale(self) -> float:
        """s = σ·sensitivity, the standard deviation of the noise on the sum."""
        return self.noise_multiplier * self.sensitivity

    def describe(self) -> str:
        """The mechanism in a few words."""
        batch = "full batch" if self.sampling_rate == 1 else f"Poisson rate {self.sampling_rate:g}"
        return f"DP-SGD, noise multiplier {self.noise_multiplier:g}, clip {self.clip:g}, {batch}"


class Transcript:
    """Running sums over the steps of one run, one entry a row: O(rows) memory.

    Each ``add_…`` takes the rows it speaks of (no row twice), and per row what the formulas above
    need; ``error`` bounds the error of (2b·g + ∥g∥²)/(2s²) or of a(g) (see
    :func:`step_rounding`). A value that is not finite is refused: nothing is private about it.
    """

    def __init__(self, mechanism: SGDMechanism) -> None:
        self.mechanism = mechanism
        n = mechanism.rows
        self.loss: FloatArray = np.zeros(n)
        self.error: FloatArray = np.zeros(n)
        # Σ∥g∥² and Σ∥g∥²/s² (replaced: of g − g') over the steps that counted.
        self.square: FloatArray = np.zeros(n)
        self.separation_square: FloatArray = np.zeros(n)
        # How many steps a row took part in, and how many its coin hid from us.
        self.seen: IntArray = np.zeros(n, dtype=np.int64)
        self.unseen: IntArray = np.zeros(n, dtype=np.int64)
        # What was added for the latter.
        self._guessed: FloatArray = np.zeros(n)
        self.steps = 0
        self._epochs: list[NDArray[np.float32]] = []

    def add_known(
        self,
        rows: Any,
        inner: Any,
        square: Any,
        scale: float,
        error: Any = 0.0,
    ) -> None:
        """Add (2·inner + square)/(2s²) to the rows of a known batch.

        ``inner`` b·g, ``square`` ∥g∥² (replaced: g − g' for g), ``scale`` s.
        """
        at, product, length, bound = self._checked(rows, inner, square, error)
        variance = _variance(scale)
        self._add(at, (product + 0.5 * length) / variance, bound)
        self._lengthen(at, length, variance)

    def add_hidden(
        self,
        rows: Any,
        inner: Any,
        square: Any,
        scale: float,
        rate: float,
        error: Any = 0.0,
    ) -> None:
        """Add log((1−q) + q·exp((2·inner − square)/(2s²))) to rows whose coin is hidden.

        ``inner`` is r·g, of rows in the batch (r = b + g) and of those that are not (r = b).
        """
        at, product, length, bound = self._checked(rows, inner, square, error)
        variance = _variance(scale)
        self._add(at, *_with_error((product - 0.5 * length) / variance, rate, bound))
        self._lengthen(at, length, variance)

    def add_hidden_replaced(
        self,
        rows: Any,
        inner: Any,
        square: Any,
        other_inner: Any,
        other_square: Any,
        apart_square: Any,
        scale: float,
        rate: float,
        error: Any = 0.0,
    ) -> None:
        """Add the hidden coin's term of g less that of g'; ``apart_square`` is ∥g − g'∥²."""
        at, product, length, bound = self._checked(rows, inner, square, error)
        _, other_product, other_length, _ = self._checked(rows, other_inner, other_square, 0.0)
        *_, apart, _ = self._checked(rows, other_inner, apart_square, 0.0)
        variance = _variance(scale)
        mine, my_error = _with_error((product - 0.5 * length) / variance, rate, bound)
        other, its_error = _with_error((other_product - 0.5 * other_length) / variance, rate, bound)
        self._add(at, mine - other, my_error + its_error)
        self._lengthen(at, apart, variance)

    def add_unseen(self, rows: Any, square: Any) -> None:
        """Rows that were not in the batch of a step at which their gradient was not computed.

        The step's noise does not depend on such a row, so that its term has a known law but for
        ∥g∥; ``square`` is the last ∥g∥² that was seen, at which the term's mean, about
        −½log(1 + q²(e^(∥g∥²/s²) − 1)), is added. What that misses is bounded, for any lengths up
        to C, in :func:`unseen_interval`.
        """
        at, _, length, _ = self._checked(rows, 0.0, square, 0.0)
        rate, variance = self.mechanism.sampling_rate, _variance(self.mechanism.noise_scale)
        if rate == 1:
            raise InvalidInput("sampling_rate=1: a full batch leaves no row unseen.")
        if self.mechanism.relation is Neighbouring.REMOVE:
            with np.errstate(over="ignore"):
                spread = 0.5 * np.log1p(rate**2 * np.expm1(length / variance))
            guess = np.maximum(-spread, math.log1p(-rate))
            self.loss[at] += guess
            self._guessed[at] += guess
        self.unseen[at] += 1
        self.square[at] += length
        self.separation_square[at] += length / variance

    def end_step(self) -> None:
        """Count a step, one with an empty batch too."""
        self.steps += 1

    def end_epoch(self) -> None:
        """Remember the losses so far (float32, rows × epochs)."""
        self._epochs.append(self.loss.astype(np.float32))

    @property
    def epochs(self) -> NDArray[np.float32]:
        """(epochs, rows) the losses after each epoch."""
        return np.array(self._epochs, dtype=np.float32).reshape(-1, self.mechanism.rows)

    @property
    def separation(self) -> FloatArray:
        """(n,) μ = √Σ∥g∥²/s²: with gradients that do not react to the noise, loss ~ N(μ²/2, μ²)."""
        return np.sqrt(self.separation_square)

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """(low, high): each loss with its rounding, and what unseen steps may have added."""
        error = self.error + 4 * ROUNDOFF * (self.steps + 4) * np.abs(self.loss)
        low, high = self.loss - error, self.loss + error
        if np.any(self.unseen):
            down, up = unseen_interval(self.mechanism, self.unseen)
            low = np.minimum(low - self._guessed + down, self.loss)
            high = np.maximum(high - self._guessed + up, self.loss)
        return low, high

    def _checked(
        self, rows: Any, inner: Any, square: Any, error: Any
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        at = np.asarray(rows)
        if at.ndim != 1 or (at.size and at.dtype.kind not in "iu"):
            raise InvalidInput("rows: must be a vector of row numbers.")
        at = at.astype(np.int64)
        ordered = np.sort(at)
        if at.size and not (ordered[0] >= 0 and ordered[-1] < self.mechanism.rows):
            raise InvalidInput(f"rows: must lie between 0 and {self.mechanism.rows - 1}.")
        if np.any(ordered[1:] == ordered[:-1]):
            raise InvalidInput(
                "rows: a row is in the batch twice, which the loss of one row does not describe;"
                " sample without replacement (Poisson)."
            )
        arrays = []
        for name, value in (("inner", inner), ("square", square), ("error", error)):
            array = np.broadcast_to(np.asarray(value, dtype=np.float64), at.shape)
            if not np.all(np.isfinite(array)) or (name != "inner" and not np.all(array >= 0)):
                raise ConvergenceError(
                    f"{name}: a step has values that are NaN, infinite or below 0; the run has"
                    " diverged: lower the learning rate or mend the loss."
                )
            arrays.append(array)
        return at, arrays[0], arrays[1], arrays[2]

    def _add(self, at: IntArray, term: FloatArray, error: FloatArray) -> None:
        self.loss[at] += term
        self.error[at] += error

    def _lengthen(self, at: IntArray, square: FloatArray, variance: float) -> None:
        self.seen[at] += 1
        self.square[at] += square
        self.separation_square[at] += square / variance


def hidden_term(exponent: Any, rate: float) -> FloatArray:
    """log((1−q) + q·e^a), without overflow, and without cancellation near a = 0."""
    a = np.asarray(exponent, dtype=np.float64)
    if rate == 1:
        return a
    rate = _validate.probability("rate", rate)
    near = np.log1p(rate * np.expm1(np.clip(a, -1.0, 1.0)))
    far = np.logaddexp(math.log1p(-rate), math.log(rate) + a)
    return np.where(np.abs(a) <= 1, near, far)


def step_rounding(
    noise_norm: float,
    square: Any,
    scale: float,
    *,
    dimension: int,
    unit: float = ROUNDOFF,
    noise_error: float = 0.0,
) -> FloatArray:
    """A bound of the error of (2b·g + ∥g∥²)/(2s²), and of a(g), given the gradients.

    γ_k(∥b∥∥g∥ + ∥g∥²/2)/s² for products of ``dimension`` entries summed in any order with the
    unit roundoff ``unit`` (Higham §3.1), plus ∥g∥·``noise_error``/s², the bound of what b itself
    is off by. Gradients count as what the machine computed: they are what was published.
    """
    k = (dimension + 8) * unit
    if not k < 0.5:
        return np.full(np.shape(square), math.inf)
    length = np.sqrt(np.asarray(square, dtype=np.float64))
    relative = k / (1 - k)
    bound: FloatArray = (
        length * (relative * (noise_norm + length) + noise_error) / _variance(scale) * (1 + 1e-9)
    )
    return bound


def _with_error(
    exponent: FloatArray, rate: float, error: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The hidden coin's term, which increases with a, and how far a's error can move it."""
    term = hidden_term(exponent, rate)
    up, down = hidden_term(exponent + error, rate), hidden_term(exponent - error, rate)
    return term, np.maximum(up - term, term - down) + 4 * ROUNDOFF * np.abs(term)


def unseen_interval(mechanism: SGDMechanism, unseen: IntArray) -> tuple[FloatArray, FloatArray]:
    """(low, high): what the terms of so many unseen steps sum to, but with probability 1e-6.

    Given the past, an unseen term is log L with L = (1−q) + q·e^(mz − m²/2), z standard normal,
    m = ∥g∥/s ≤ C/s. For λ ≥ 1 and for λ < 0 E[L^λ] is an f-divergence and so grows with m
    (data processing); hence exp(λ·Σ log L − k·log E[L^λ at C/s]) is a supermartingale over k
    steps, and Markov's inequality bounds the sum on either side (a Chernoff bound; the best λ of
    a grid is taken). Replaced: one such sum less another.
    """
    rate, most = mechanism.sampling_rate, mechanism.clip / mechanism.noise_scale
    replaced = mechanism.relation is Neighbouring.REPLACE
    tail = math.log((4 if replaced else 2) / UNSEEN_FAILS)
    orders = np.geomspace(1.0, 1e4, 60)
    counts, where = np.unique(unseen, return_inverse=True)

    def bound(sign: float) -> FloatArray:
        moments = np.array([_log_moment(sign * order, most, rate) for order in orders])
        return np.where(counts > 0, ((counts[:, None] * moments + tail) / orders).min(axis=1), 0.0)

    above = bound(1.0)
    # No term is below log(1−q).
    below = np.minimum(bound(-1.0), -counts * math.log1p(-rate))
    if replaced:
        above = below = above + below
    return -below[where], above[where]


def _log_moment(order: float, separation: float, rate: float) -> float:
    """log E[L^order], L = (1−q) + q·e^(mz − m²/2), z standard normal, by the trapezoidal rule."""
    # L has no zero within π/m of the real line, so that the rule errs by less than e^(−4π²).
    step = min(0.05, 0.5 / separation)
    reach = 14 + max(order, 0.0) * separation
    z = np.arange(-14.0, reach + step, step)
    if len(z) > 2_000_000:
        return math.inf
    term = hidden_term(separation * z - 0.5 * separation**2, rate)
    logs = order * term - 0.5 * z * z
    return float(logsumexp(logs)) + math.log(step / math.sqrt(2 * math.pi)) + 1e-12


def _variance(scale: float) -> float:
    return _validate.positive("scale", scale) ** 2
