"""DP-SGD: the privacy loss of every row in the noisy gradients of one training run.

Conventions
-----------
g         a row's clipped gradient at the step's parameters, ∥g∥ ≤ C; g' that of the row which
          replaces it (replace).
b         the step's noise, N(0, s²I): the step publishes (sum of the batch's g) + b, divided by
          a public constant. Parameters are a function of what was published before.
r         b + the row's own g if it was in the batch: the noisy sum less the other rows' gradients.
s         σC; where a row is replaced 2σC (global sensitivity), so that μ ≤ √steps/σ either way.
a(g)      (2r·g − ∥g∥²)/(2s²) = log N(r; g, s²I) − log N(r; 0, s²I).
transcript  all noisy sums of the run: what D5.3's strong adversary and a party in federated
          learning see.

The loss of a row for the transcript is the sum of its steps' terms, since given the past each
step is a Gaussian mechanism of its own (D5.3 Alg. 1, line 11, in logarithms, for every row):

    known batches    (2b·g + ∥g∥²)/(2s²) if the row was in the batch, else 0
                     replaced: the same with g − g' for g, = (∥b + g − g'∥² − ∥b∥²)/(2s²)
    hidden batches   log((1−q) + q·e^a(g)): the batches of all rows but this one are known
                     replaced: log((1−q) + q·e^a(g)) − log((1−q) + q·e^a(g'))
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost._numerics import ROUNDOFF
from expost.errors import ConvergenceError, InvalidInput
from expost.mechanisms.hidden_batches import (
    drawn_losses,
    hidden_term,
    unseen_interval,
    unseen_mean,
)
from expost.mechanisms.row_losses import RowLosses, mean_exposures
from expost.noise import GaussianLaw
from expost.results import Displayed
from expost.risk import GaussianNoise, Guarantee
from expost.risk.dpsgd import DPSGD
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["Adversary", "SGDMechanism", "Transcript", "step_rounding"]

# Runs behind an expected exposure without a closed form, and their seed.
_RUNS = 256
_SEED = 0


class Adversary(Enum):
    """What an adversary who sees all noisy sums and knows all other rows knows of the batches.

    KNOWN_BATCHES: which rows were in which batch (federated learning; full batch). HIDDEN_BATCHES:
    the same, except for the batches of the row in question.
    """

    KNOWN_BATCHES = "known-batches"
    HIDDEN_BATCHES = "hidden-batches"

    @classmethod
    def parse(cls, value: "Adversary | str") -> "Adversary":
        """Return the member that ``value`` names.

        Parameters
        ----------
        value : Adversary | str
            A member, or its value, such as "known-batches".

        Returns
        -------
        Adversary
            The member.

        Raises
        ------
        InvalidInput
            If there is no such member.
        """
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(member.value) for member in cls)
            raise InvalidInput(f"adversary={value!r}: must be one of {names}.") from None


@dataclass(frozen=True, kw_only=True)
class SGDMechanism:
    """The public constants of a run of DP-SGD with noisy sums.

    Parameters
    ----------
    rows : int
        n; no batch size is read from it.
    noise_multiplier : float
        σ, the noise's standard deviation over the global sensitivity.
    clip : float
        C, the largest length of a row's gradient.
    sampling_rate : float, default=1.0
        q, each row's chance to be in a batch (Poisson); 1: full batch.
    relation : Neighbouring, default=Neighbouring.REMOVE
        REMOVE (sensitivity C) or REPLACE (2C).
    norm_budget : float, optional
        B of a filter that leaves a row out for good before √Σ∥g∥² passes B (full batch), or None.
        Gaussian noise composes fully adaptively, so that then μ ≤ B/s for every row of any data
        (Feldman and Zrnic 2021; Smith and Thakurta 2022).
    """

    rows: int
    noise_multiplier: float
    clip: float
    sampling_rate: float = 1.0
    relation: Neighbouring = Neighbouring.REMOVE
    norm_budget: float | None = None

    def __post_init__(self) -> None:
        _checks.integer("rows", self.rows, least=1)
        _checks.positive("noise_multiplier", self.noise_multiplier)
        _checks.positive("clip", self.clip)
        if self.sampling_rate != 1:
            _checks.probability("sampling_rate", self.sampling_rate)
        object.__setattr__(self, "relation", Neighbouring.parse(self.relation))
        if self.relation is Neighbouring.ADD:
            raise InvalidInput(
                "relation='add': losses are those of rows in the run; use 'remove' or 'replace'."
            )
        if self.norm_budget is not None:
            _checks.positive("norm_budget", self.norm_budget)
            if self.sampling_rate != 1 or self.relation is not Neighbouring.REMOVE:
                raise InvalidInput(
                    f"norm_budget={self.norm_budget!r}: a filter needs the full batch and"
                    " relation='remove'."
                )

    @property
    def sensitivity(self) -> float:
        """How far the sum of clipped gradients moves at most: C, or 2C where a row is replaced."""
        return self.clip if self.relation is Neighbouring.REMOVE else 2 * self.clip

    @property
    def noise_scale(self) -> float:
        """s = σ·sensitivity, the standard deviation of the noise on the sum."""
        return self.noise_multiplier * self.sensitivity

    def guarantee(self, steps: int) -> Guarantee:
        """Return the worst case of ``steps`` steps: any row, any data, hidden batches.

        Parameters
        ----------
        steps : int
            The number of steps.

        Returns
        -------
        Guarantee
            The guarantee for hidden batches.
        """
        steps = _checks.integer("steps", steps, least=1)
        if self.sampling_rate == 1:
            return self.unsampled(math.sqrt(steps) / self.noise_multiplier, steps)
        return self.sampled(self.noise_scale, steps)

    def unsampled(self, mu: float, steps: int) -> Guarantee:
        """Return the worst case of ``steps`` steps in known batches that are ``mu`` together.

        Parameters
        ----------
        mu : float
            √Σ(sensitivity/s)² over the steps that the row was in.
        steps : int
            The number of steps.

        Returns
        -------
        Guarantee
            The guarantee for known batches.
        """
        if self.norm_budget is not None:
            mu = min(mu, self.norm_budget / self.noise_scale)
        # Rounded towards less noise; in units of C, as accounting has it for either relation.
        noise = math.sqrt(steps) / mu * (self.sensitivity / self.clip) * (1 - 2.0**-50)
        return DPSGD(noise_multiplier=noise, steps=steps, relation=self.relation)

    def sampled(self, scale: float, steps: int, *, rows_per_person: int = 1) -> Guarantee:
        """Return the worst case of ``steps`` steps in hidden batches, at noise ``scale``.

        Parameters
        ----------
        scale : float
            The standard deviation s of the noise.
        steps : int
            The number of steps.
        rows_per_person : int, default=1
            The largest number of rows that are removed at once.

        Returns
        -------
        Guarantee
            The guarantee for hidden batches.
        """
        return DPSGD(
            noise_multiplier=scale / self.clip,
            sampling_rate=self.sampling_rate,
            steps=steps,
            relation=self.relation,
            rows_per_person=rows_per_person,
        )

    def describe(self) -> str:
        """Return the mechanism in a few words.

        Returns
        -------
        str
            The description.
        """
        batch = "full batch" if self.sampling_rate == 1 else f"Poisson rate {self.sampling_rate:g}"
        return f"DP-SGD, noise multiplier {self.noise_multiplier:g}, clip {self.clip:g}, {batch}"


class Transcript(Displayed):
    """Running sums over the steps of one run, one entry a row: O(rows) memory.

    Each ``add_…`` takes rows (no row twice), and per row what the formulas above need; ``error``
    bounds the error of (2b·g + ∥g∥²)/(2s²) or of a(g) (see :func:`step_rounding`). A value that is
    not finite is refused. With a full batch the two adversaries are one, and ``add_known`` serves
    both. Curator-only.

    Parameters
    ----------
    mechanism : SGDMechanism
        The public constants of the run.
    adversary : Adversary, default=Adversary.KNOWN_BATCHES
        What the adversary sees. It is KNOWN_BATCHES for a full batch.
    """

    audience = Audience.CURATOR_ONLY

    def __init__(
        self, mechanism: SGDMechanism, *, adversary: Adversary = Adversary.KNOWN_BATCHES
    ) -> None:
        self.mechanism = mechanism
        hidden = adversary is Adversary.HIDDEN_BATCHES and mechanism.sampling_rate < 1
        self.adversary = Adversary.HIDDEN_BATCHES if hidden else Adversary.KNOWN_BATCHES
        n = mechanism.rows
        self.loss: FloatArray = np.zeros(n)
        self.error: FloatArray = np.zeros(n)
        # Σ∥g∥² and Σ∥g∥²/s² (replaced: of g − g') over the steps that a row is in, and the
        # largest that the latter could have been.
        self.square: FloatArray = np.zeros(n)
        self.separation_square: FloatArray = np.zeros(n)
        self.most_separation_square: FloatArray = np.zeros(n)
        # The steps that a row was in, those that were not computed, and what was added for those.
        self._batches: IntArray = np.zeros(n, dtype=np.int64)
        self.unseen: IntArray = np.zeros(n, dtype=np.int64)
        self._guessed: FloatArray = np.zeros(n)
        self.steps = 0
        self._least_scale = math.inf
        self._epochs: list[NDArray[np.float32]] = []

    def add_known(
        self,
        rows: Any,
        inner: Any,
        square: Any,
        scale: float,
        error: Any = 0.0,
        *,
        count: Any = 1,
    ) -> None:
        """Add (2·inner + square)/(2s²) to the rows of a known batch.

        Parameters
        ----------
        rows : Any
            The row numbers, none twice.
        inner : Any
            b·g of each row (replaced: b·(g − g')).
        square : Any
            ∥g∥² of each row (replaced: ∥g − g'∥²).
        scale : float
            The standard deviation s of the noise b.
        error : Any, default=0.0
            A bound on the error of the added term, per row or for all.
        count : Any, default=1
            The number of gradients that g is the sum of, where an entry is a person.

        Raises
        ------
        InvalidInput
            If a value is not finite.
        """
        self._expect(Adversary.KNOWN_BATCHES)
        at = self._rows(rows)
        product, length, bound = self._values(at, inner=inner, square=square, error=error)
        self._add(at, (product + 0.5 * length) / _variance(scale), bound)
        self._lengthen(at, length, scale, count)

    def add_hidden(
        self, rows: Any, inner: Any, square: Any, scale: float, rate: float, error: Any = 0.0
    ) -> None:
        """Add log((1−q) + q·exp((2·inner − square)/(2s²))) to rows of hidden batches.

        Parameters
        ----------
        rows : Any
            The row numbers, none twice.
        inner : Any
            r·g of each row: r = b + g for rows in the batch, r = b for the others.
        square : Any
            ∥g∥² of each row.
        scale : float
            The standard deviation s of the noise b.
        rate : float
            The probability q that a row is in the batch.
        error : Any, default=0.0
            A bound on the error of the added term, per row or for all.

        Raises
        ------
        InvalidInput
            If a value is not finite.
        """
        self._expect(Adversary.HIDDEN_BATCHES)
        at = self._rows(rows)
        product, length, bound = self._values(at, inner=inner, square=square, error=error)
        self._add(at, *_with_error((product - 0.5 * length) / _variance(scale), rate, bound))
        self._lengthen(at, length, scale)

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
        """Add the term of g in hidden batches less that of g'.

        Parameters
        ----------
        rows : Any
            The row numbers, none twice.
        inner : Any
            r·g of each row.
        square : Any
            ∥g∥² of each row.
        other_inner : Any
            r·g' of the row that stands in.
        other_square : Any
            ∥g'∥².
        apart_square : Any
            ∥g − g'∥².
        scale : float
            The standard deviation s of the noise b.
        rate : float
            The probability q that a row is in the batch.
        error : Any, default=0.0
            A bound on the error of the added term, per row or for all.

        Raises
        ------
        InvalidInput
            If a value is not finite.
        """
        self._expect(Adversary.HIDDEN_BATCHES)
        at = self._rows(rows)
        product, length, bound = self._values(at, inner=inner, square=square, error=error)
        others = self._values(at, inner=other_inner, square=other_square, apart=apart_square)
        variance = _variance(scale)
        mine, my_error = _with_error((product - 0.5 * length) / variance, rate, bound)
        other, its_error = _with_error((others[0] - 0.5 * others[1]) / variance, rate, bound)
        self._add(at, mine - other, my_error + its_error)
        self._lengthen(at, others[2], scale)

    def add_unseen(self, rows: Any, square: Any) -> None:
        """Add rows that were not in the batch of a step at which their gradient was not computed.

        The step's noise does not depend on such a row, so that its term has a known law but for
        ∥g∥. Its mean at ``square``, the last ∥g∥² (replaced: ∥g − g'∥²) that was computed, is
        added; its error is bounded for any lengths up to C (:func:`unseen_interval`).

        Parameters
        ----------
        rows : Any
            The row numbers, none twice.
        square : Any
            The last ∥g∥² (replaced: ∥g − g'∥²) that was computed for each row.
        """
        self._expect(Adversary.HIDDEN_BATCHES)
        at = self._rows(rows)
        (length,) = self._values(at, square=square)
        if self.mechanism.relation is Neighbouring.REMOVE:
            mechanism = self.mechanism
            most = mechanism.clip / mechanism.noise_scale
            guess = unseen_mean(
                np.sqrt(length) / mechanism.noise_scale, mechanism.sampling_rate, most
            )
            self._guessed[at] += guess
            self._add(at, guess, np.zeros(len(at)))
        self.unseen[at] += 1
        self._lengthen(at, length, self.mechanism.noise_scale)

    def end_step(self) -> None:
        """Count a step, one with an empty batch too."""
        self.steps += 1

    def end_epoch(self) -> None:
        """Remember the losses so far (float32, rows × epochs)."""
        self._epochs.append(self.loss.astype(np.float32))

    @property
    def epochs(self) -> NDArray[np.float32]:
        """(epochs, n) the losses after each epoch."""
        return np.array(self._epochs, dtype=np.float32).reshape(-1, self.mechanism.rows)

    @property
    def separation(self) -> FloatArray:
        """(n,) μ = √(Σ∥g∥²/s²); if gradients did not depend on the noise, loss ~ N(μ²/2, μ²)."""
        return np.sqrt(self.separation_square)

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return (low, high): each loss with its rounding, and what unseen steps may have added.

        Returns
        -------
        tuple[FloatArray, FloatArray]
            (n,) the lower and the upper ends.
        """
        low, high = self.loss - self.error, self.loss + self.error
        if np.any(self.unseen):
            mechanism = self.mechanism
            down, up = unseen_interval(
                self.unseen,
                mechanism.sampling_rate,
                mechanism.clip / mechanism.noise_scale,
                replaced=mechanism.relation is Neighbouring.REPLACE,
            )
            low = np.minimum(low - self._guessed + down, self.loss)
            high = np.maximum(high - self._guessed + up, self.loss)
        return low, high

    def guarantee(self) -> Guarantee:
        """Return the guarantee of this run's noise against this adversary: any row, any data.

        Known batches: μ² = Σ(sensitivity/s)² over the steps of the row that was in most of them;
        which ones a row was in does not depend on the data. Hidden: amplified by sampling.

        Returns
        -------
        Guarantee
            The guarantee.
        """
        if self.adversary is Adversary.HIDDEN_BATCHES:
            return self.mechanism.sampled(self._least_scale, self.steps)
        steps = int(np.max(self._batches))
        if steps == 0:
            # Every batch was empty.
            return GaussianNoise(mu=0.0)
        mu = math.sqrt(float(np.max(self.most_separation_square)))
        return self.mechanism.unsampled(mu * (1 + steps * ROUNDOFF), steps)

    def row_losses(self, *, delta: float = 1e-5, guaranteed: bool = True) -> RowLosses:
        """Return the losses in the form that all mechanisms share.

        The law for known batches takes each gradient for as long as it was in this run; the far
        law takes them all for as long as clipping allows, which bounds every run. For
        hidden batches losses are drawn, at gradients of the mean length; a row replaced has no law.

        Parameters
        ----------
        delta : float, default=1e-05
            The worst case b is the guarantee's loss at δ: evidence for the row passes it with
            probability δ at most, against it with δe^(−b) (P ≤ e^(−b)Q there).
        guaranteed : bool, default=True
            False where the noise was read from the data (local sensitivity).

        Returns
        -------
        RowLosses
            The losses of all rows, with their intervals and laws.
        """
        delta = _checks.probability("delta", delta)
        low, high = self.interval()
        known = self.adversary is Adversary.KNOWN_BATCHES
        drawn = not known and self.mechanism.relation is Neighbouring.REMOVE
        guarantee = self.guarantee() if guaranteed and self.steps > 0 else None
        worst = math.inf if guarantee is None else guarantee.loss(delta)
        distance = np.sqrt(self.square)
        furthest = np.sqrt(self.most_separation_square)
        if self.mechanism.norm_budget is not None:
            furthest = np.minimum(furthest, self.mechanism.norm_budget / self.mechanism.noise_scale)
        # Where steps were not computed, a gradient may have been 0 or of full length.
        most = np.sqrt(self.square + self.unseen * self.mechanism.sensitivity**2) - distance
        error = np.where(self.unseen > 0, np.maximum(most, distance), 0.0)
        return RowLosses(
            loss=self.loss.copy(),
            low=low,
            high=high,
            distance=distance,
            distance_error=error + 4 * ROUNDOFF * (self.steps + 4) * distance,
            relation=self.mechanism.relation,
            law=GaussianLaw(separation=self.separation) if known else None,
            far_law=GaussianLaw(separation=furthest) if known else None,
            worst_case=worst,
            worst_case_passed=0.0
            if guarantee is None
            else min(delta * (1 + math.exp(-worst)), 1.0),
            guarantee=guarantee,
            draw=self._draw if drawn else None,
            sampled=self._sampled if drawn else None,
        )

    def _draw(self, runs: int, rng: np.random.Generator) -> Iterator[FloatArray]:
        m = self.separation / math.sqrt(max(self.steps, 1))
        return drawn_losses(m, self.mechanism.sampling_rate, self.steps, runs, rng)

    def _sampled(self) -> tuple[FloatArray, FloatArray]:
        """Return E∣loss∣ and its standard error."""
        drawn = self._draw(_RUNS, np.random.default_rng(_SEED))
        return mean_exposures(drawn, self.mechanism.rows)

    def _expect(self, adversary: Adversary) -> None:
        if self.adversary is not adversary:
            raise InvalidInput(
                f"adversary={self.adversary.value!r}: this transcript does not add the terms of"
                f" {adversary.value!r}; make one for each adversary."
            )

    def _rows(self, rows: Any) -> IntArray:
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
        return at

    def _values(self, at: IntArray, **values: Any) -> list[FloatArray]:
        arrays = []
        for name, value in values.items():
            array = np.broadcast_to(np.asarray(value, dtype=np.float64), at.shape)
            # An error may be infinite: the interval of the loss then is, too.
            most = math.inf if name == "error" else np.finfo(np.float64).max
            least = -most if name == "inner" else 0.0
            if not np.all((array >= least) & (array <= most)):
                raise ConvergenceError(
                    f"{name}: a step has values that are NaN, infinite or below 0: the run has"
                    " diverged; lower the learning rate or fix the loss."
                )
            arrays.append(array)
        return arrays

    def _add(self, at: IntArray, term: FloatArray, error: FloatArray) -> None:
        self.loss[at] += term
        self.error[at] += error + 4 * ROUNDOFF * (np.abs(term) + np.abs(self.loss[at]))

    def _lengthen(self, at: IntArray, square: FloatArray, scale: float, count: Any = 1) -> None:
        variance = _variance(scale)
        self.square[at] += square
        self.separation_square[at] += square / variance
        self._batches[at] += 1
        self.most_separation_square[at] += (count * self.mechanism.sensitivity) ** 2 / variance
        self._least_scale = min(self._least_scale, scale)


def step_rounding(
    noise_norm: float,
    square: Any,
    scale: float,
    *,
    dimension: int,
    unit: float = ROUNDOFF,
    noise_error: float = 0.0,
) -> FloatArray:
    """Bound the error of (2b·g + ∥g∥²)/(2s²), and of a(g), given the gradients.

    γ_k(∥b∥∥g∥ + ∥g∥²)/s² for products of ``dimension`` entries summed in any order with the unit
    roundoff ``unit`` (Higham §3.1), plus ∥g∥·``noise_error``/s², the bound of what b itself is
    off by; infinite where there is no such bound. Gradients count as what the machine computed:
    they are what was published.
    """
    k = (dimension + 8) * unit
    length = np.sqrt(np.asarray(square, dtype=np.float64))
    if not (k < 0.5 and noise_error < math.inf):
        return np.full(length.shape, math.inf)
    relative = k / (1 - k)
    bound: FloatArray = length * (relative * (noise_norm + length) + noise_error) / _variance(scale)
    return bound * (1 + 1e-9)


def _with_error(
    exponent: FloatArray, rate: float, error: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the term of hidden batches, which increases with a, and the bound of its error."""
    term = hidden_term(exponent, rate)
    up, down = hidden_term(exponent + error, rate), hidden_term(exponent - error, rate)
    return term, np.maximum(up - term, term - down)


def _variance(scale: float) -> float:
    return _checks.positive("scale", scale) ** 2
