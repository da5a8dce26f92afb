"""Several releases of the same data as one guarantee, and what each composition theorem costs.

Conventions
-----------
As in :mod:`expost.risk.guarantee`. A release of DP-SGD is one step. Releases may be chosen after
seeing those before them, unless a figure states otherwise.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from expost import _checks
from expost.accounting.laws import NormLaplaceStep, RandomizedResponse, SampledGaussian, StepLaw
from expost.accounting.pld import PrivacyLoss, summed
from expost.accounting.rdp import (
    Steps,
    mironov_epsilon,
    renyi_advantage,
    revealed,
    tight_epsilon,
)
from expost.errors import InvalidInput
from expost.files.sealed import plain
from expost.results import Displayed
from expost.risk.dpsgd import DPSGD, checked, gaussian_loss
from expost.risk.epsilon_delta import EpsilonDelta
from expost.risk.gaussian import GaussianNoise
from expost.risk.guarantee import (
    Guarantee,
    count,
    extended,
    level,
    posterior_after,
    rate,
    up,
)
from expost.risk.norm_laplace import NormLaplaceNoise
from expost.types import Audience, Neighbouring

__all__ = [
    "Composition",
    "CompositionComparison",
    "CompositionRow",
    "compare_compositions",
    "repeat",
]

# Laws closer together than this are bounded by those at it: squares must not underflow.
_LEAST = 1e-100
# Past these a law among others is no longer resolved: Gaussian noise then guarantees nothing, and
# of norm-Laplace noise only its ε is used.
_LARGEST_MU = 1e8
_LARGEST_NORM_LAPLACE = 1e7
# Past this squares of a loss overflow, and nothing is guaranteed.
_LARGEST_EPSILON = 1e100


@dataclass(frozen=True)
class Composition(Guarantee):
    """All of ``parts`` together: EpsilonDelta, GaussianNoise, NormLaplaceNoise, DPSGD, Composition.

    Parameters
    ----------
    parts : tuple[Guarantee, ...]
        The guarantees of the releases, all of the same data.

    Formal guarantees
    -----------------
    Gaussian parts are one with μ² = Σμᵢ² (all figures but ``loss``); of pure parts
    ``epsilon(0)`` = ``loss(0)`` = Σε, exactly; one part is itself. Else the figures are those of
    the composed privacy-loss distribution, from above, in which an (ε, δ) guarantee stands as
    the worst mechanism that keeps it. ``loss`` bounds the evidence also of releases that react to
    those before them, so that of several Gaussian parts it is more than the quantile of √Σμᵢ²
    (``gaussian_loss``).
    """

    parts: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_flat(self.parts)))
        if not self.parts:
            raise InvalidInput("parts=(): must hold at least one guarantee.")
        relations = {
            part.relation is Neighbouring.REPLACE for part in self.parts if isinstance(part, DPSGD)
        }
        if len(relations) > 1:
            raise InvalidInput(
                "parts: hold DP-SGD both for a row removed and for a row replaced; state all for"
                " the same relation."
            )

    def delta(self, epsilon: float) -> float:
        """Return δ(ε) of all together."""
        epsilon = extended("epsilon", epsilon)
        if self._single is not None:
            return self._single.delta(epsilon)
        loss = self.privacy_loss
        return loss.revealed if epsilon == math.inf else checked(loss.delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``; infinite where there is none."""
        return self.epsilon_interval(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """Return (low, high) around ε(δ) of the dominating pair; the second is guaranteed.

        Parameters
        ----------
        delta : float
            δ in [0, 1).

        Returns
        -------
        tuple[float, float]
            The lower and the upper end.
        """
        delta = level("delta", delta)
        if isinstance(self._single, DPSGD):
            return self._single.epsilon_interval(delta)
        if self._single is not None:
            epsilon = self._single.epsilon(delta)
            return epsilon, epsilon
        low, high = self.privacy_loss.epsilon_interval(delta)
        return checked(low), checked(high)

    def loss(self, delta: float = 0.0) -> float:
        """Return the least b that the evidence for the truth passes with P ≤ ``delta``.

        In either world; P(∣ℓ∣ > b) is at most δ(1 + e^(−b)).
        """
        delta = level("delta", delta)
        if self._single is None:
            return checked(self.privacy_loss.loss(delta))
        if isinstance(self._single, GaussianNoise) and self._reacts:
            return gaussian_loss(self._single.mu, delta)
        return self._single.loss(delta)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the largest true-positive rate of any test at this false-positive rate."""
        fpr = rate("false_positive_rate", false_positive_rate)
        if self._single is not None:
            return self._single.true_positive_rate(fpr)
        return up(checked(self.privacy_loss.true_positive_rate(fpr)), most=1.0)

    def describe(self) -> str:
        """Return a description, as '2 × epsilon = 1; Gaussian noise, mu = 0.5'."""
        counts = Counter(self.parts)
        return "; ".join(
            part.describe() if count == 1 else f"{count} × {part.describe()}"
            for part, count in counts.items()
        )

    @property
    def gaussian(self) -> GaussianNoise | None:
        """The Gaussian noise that all parts are together, else None."""
        return None if self._single is None else self._single.gaussian

    @property
    def has_delta(self) -> bool:
        """Whether a part has δ > 0 of its own."""
        return any(part.has_delta for part in self.parts)

    @property
    def privacy_loss(self) -> PrivacyLoss:
        """The composed privacy-loss distribution."""
        return PrivacyLoss(steps=steps_of(self.parts))

    @cached_property
    def _single(self) -> Guarantee | None:
        """The guarantee of a known law that all parts are together, if there is one."""
        if len(self.parts) == 1:
            return self.parts[0]
        if all(part.gaussian is not None for part in self.parts):
            return GaussianNoise(mu=_together(self.parts))
        return None if steps_of(self.parts) else EpsilonDelta(epsilon=0.0)

    @property
    def _reacts(self) -> bool:
        """Whether a later release may depend on an earlier one: whether there is more than one."""
        return len(self.parts) > 1


def repeat(guarantee: Guarantee, releases: int) -> Guarantee:
    """Return so many releases of a guarantee each as one.

    Of Gaussian noise √k·μ: its posteriors hold where all releases are fixed beforehand, all other
    figures always.
    """
    times = count("releases", releases)
    if times == 1:
        return guarantee
    match guarantee:
        case GaussianNoise(mu=mu):
            # Two roundings, the root's and the product's.
            return GaussianNoise(mu=mu * math.sqrt(times) * (1 + 2.0**-51))
        case DPSGD(steps=steps):
            return replace(guarantee, steps=steps * times)
        case _:
            return Composition(parts=(guarantee,) * times)


def steps_of(parts: Iterable[Guarantee]) -> Steps:
    """Return the laws of the losses of all releases: equal ones counted, Gaussian ones merged."""
    parts = list(parts)
    counts: Counter[StepLaw] = Counter()
    mu = _together(parts)
    if mu > 0:
        law = SampledGaussian(mu=max(mu, _LEAST)) if mu <= _LARGEST_MU else _NOTHING_KEPT
        counts[law] += 1
    for part in parts:
        match part:
            case DPSGD() if part.sampling_rate < 1:
                counts[part.law] += part.steps
            case NormLaplaceNoise() if part.separation > 0:
                counts[_norm_laplace(part)] += 1
            case EpsilonDelta() if part.guaranteed_epsilon > 0 or part.guaranteed_delta > 0:
                counts[_response(part.guaranteed_epsilon, part.guaranteed_delta)] += 1
    return tuple(counts.items())


_NOTHING_KEPT = RandomizedResponse(epsilon=math.inf)


def _response(epsilon: float, delta: float = 0.0) -> StepLaw:
    if epsilon > _LARGEST_EPSILON:
        return _NOTHING_KEPT
    return RandomizedResponse(epsilon=max(epsilon, _LEAST), delta=delta)


def _norm_laplace(part: NormLaplaceNoise) -> StepLaw:
    if part.separation + part.dimension > _LARGEST_NORM_LAPLACE:
        return _response(part.separation)
    return NormLaplaceStep(separation=max(part.separation, _LEAST), dimension=part.dimension)


def _together(parts: Iterable[Guarantee]) -> float:
    """Return √Σμ² of the Gaussian ones, rounded up."""
    noises = [part.gaussian for part in parts]
    each = [noise.mu for noise in noises if noise is not None]
    mu = math.hypot(*each)
    return mu if len(each) < 2 or mu == math.inf else mu * (1 + 2.0**-51)


def _flat(parts: Iterable[Guarantee]) -> Iterable[Guarantee]:
    for part in parts:
        if isinstance(part, Composition):
            yield from part.parts
        elif isinstance(part, EpsilonDelta | GaussianNoise | NormLaplaceNoise | DPSGD):
            yield part
        else:
            raise InvalidInput(
                f"parts: a {type(part).__name__} cannot be composed; give EpsilonDelta,"
                " GaussianNoise, NormLaplaceNoise, DPSGD or Composition."
            )


@dataclass(frozen=True, kw_only=True)
class CompositionRow:
    """The figures by one composition theorem.

    ``loss`` and ``posterior`` are exceeded with probability δ at most; ``times`` is ε over that of
    the privacy-loss distribution, the cost of this theorem.
    """

    name: str
    epsilon: float
    loss: float
    posterior: float
    advantage: float
    times: float
    note: str


@dataclass(frozen=True, kw_only=True)
class CompositionComparison(Displayed):
    """The same releases composed by four theorems, from the loosest to the tightest.

    Parameters
    ----------
    description : str
        The releases in a few words.
    releases : int
        The number of releases.
    delta : float
        The δ at which ε is reported.
    prior : float
        The attacker's probability of presence before the releases.
    rows : tuple[CompositionRow, ...]
        One row for each theorem.
    audience : Audience, default=Audience.PUBLIC
        That of the model; a guarantee without one is public.
    """

    description: str
    releases: int
    delta: float
    prior: float
    rows: tuple[CompositionRow, ...]
    audience: Audience = Audience.PUBLIC

    def row(self, name: str) -> CompositionRow:
        """Return the row of this name: sequential, rdp-mironov, rdp-tight or pld.

        Parameters
        ----------
        name : str
            The name of the theorem.

        Returns
        -------
        CompositionRow
            ε, posterior and advantage by this theorem.

        Raises
        ------
        InvalidInput
            If there is no row of this name.
        """
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise InvalidInput(f"name={name!r}: must be one of {names}.")

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON; infinite figures read 'infinity'.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        return {
            "releases": self.releases,
            "description": self.description,
            "delta": self.delta,
            "prior": self.prior,
            "rows": [
                {
                    "name": row.name,
                    "epsilon": plain(row.epsilon),
                    "loss": plain(row.loss),
                    "posterior": row.posterior,
                    "advantage": row.advantage,
                    "times": plain(row.times),
                    "note": row.note,
                }
                for row in self.rows
            ],
        }


def compare_compositions(
    parts: Sequence[Guarantee], *, delta: float, prior: float = 0.5
) -> CompositionComparison:
    """Return ε at ``delta``, posterior and advantage of all parts, by each composition theorem.

    Sequential (D5.3 3.2): Σε at Σδ, with what δ is left after the parts' own split equally. Rényi
    divergences with Mironov's conversion (D5.3 4.3) and with dp_accounting's tighter one. The
    privacy-loss distribution.

    Parameters
    ----------
    parts : sequence of Guarantee
        The guarantees of the releases.
    delta : float
        The δ of all releases together.
    prior : float, default=0.5
        The probability of presence before the releases.

    Returns
    -------
    CompositionComparison
        A row for each theorem, from the loosest to the tightest.

    Raises
    ------
    InvalidInput
        If there is no part, a part cannot be composed, or a probability is out of range.
    """
    whole = Composition(parts=tuple(parts))
    delta, prior = level("delta", delta), _checks.probability("prior", prior)
    steps = steps_of(whole.parts)
    rows = [
        _sequential(whole.parts, delta),
        _mironov(steps, delta),
        _tight(steps, delta),
        (
            "pld",
            whole.epsilon(delta),
            whole.loss(delta),
            whole.advantage,
            "the privacy-loss distribution, composed; for Gaussian noise alone its closed form.",
        ),
    ]
    best = rows[-1][1]
    return CompositionComparison(
        description=whole.describe(),
        releases=_count(whole.parts),
        delta=delta,
        prior=prior,
        rows=tuple(
            CompositionRow(
                name=name,
                epsilon=epsilon,
                loss=loss,
                posterior=posterior_after(prior, loss),
                advantage=advantage,
                times=epsilon / best
                if 0 < best < math.inf
                else 1.0
                if epsilon == best
                else math.inf,
                note=note,
            )
            for name, epsilon, loss, advantage, note in rows
        ),
    )


_Figures = tuple[str, float, float, float, str]


def _sequential(parts: Sequence[Guarantee], delta: float) -> _Figures:
    epsilon = _summed(parts, delta)
    # P(ℓ > ε + γ) ≤ δ'/(1 − e^(−γ)) (erratum 10), where the releases get the share δ'/δ of δ. Of
    # DP-SGD every share needs another curve, and more than one is not worth it.
    shares = (0.5,) if any(isinstance(part, DPSGD) for part in parts) else (0.5, 0.1, 0.01, 1e-4)
    loss = min(_summed(parts, share * delta) - math.log1p(-share) for share in shares)
    loss = min(loss, _summed(parts, 0.0))
    advantage = EpsilonDelta(epsilon=epsilon, delta=delta).advantage
    note = "the sum of every release's epsilon at an equal share of delta; posteriors from a part."
    return "sequential", epsilon, loss, advantage, note


def _mironov(steps: Steps, delta: float) -> _Figures:
    epsilon = _renyi(steps, delta, mironov_epsilon)
    advantage = EpsilonDelta(epsilon=epsilon, delta=delta).advantage
    note = "Rényi divergences, Mironov 2017 Prop. 3 (D5.3 4.3), at the best real order."
    return "rdp-mironov", epsilon, _evidence(steps, delta, mironov_epsilon), advantage, note


def _tight(steps: Steps, delta: float) -> _Figures:
    epsilon = _renyi(steps, delta, tight_epsilon)
    loss = min(
        _evidence(steps, delta, mironov_epsilon),
        _renyi(steps, 0.5 * delta, tight_epsilon) + math.log(2),
    )
    advantage = EpsilonDelta(epsilon=epsilon, delta=delta).advantage
    note = "the same with dp-accounting's tighter conversion (Canonne et al. 2020, Prop. 12)."
    return "rdp-tight", epsilon, loss, min(advantage, renyi_advantage(steps)), note


def _renyi(steps: Steps, delta: float, convert: Any) -> float:
    """Return ε of a conversion; at δ = 0, order ∞: the largest loss."""
    largest = PrivacyLoss(steps=steps).largest
    revealing = revealed(steps)
    if delta <= revealing:
        return largest if delta == revealing else math.inf
    if not steps:
        return 0.0
    return min(largest, max(float(convert(steps, delta).value), 0.0))


def _evidence(steps: Steps, delta: float, convert: Any) -> float:
    """Return what ℓ passes with probability ``delta`` at most, for every pair.

    A conversion bounds ℓ itself where no release reveals the row. A release that reveals it with
    probability δ' may as well spread that over finite losses, and only P(ℓ > ε + γ) ≤
    δ(ε)/(1 − e^(−γ)) is left (erratum 10).
    """
    revealing = revealed(steps)
    if revealing == 0:
        return _renyi(steps, delta, convert)
    if not revealing < delta:
        return math.inf
    parts = [revealing + share * (delta - revealing) for share in (0.0, 0.1, 0.5)]
    return min(_renyi(steps, part, convert) - math.log1p(-part / delta) for part in parts)


def _summed(parts: Sequence[Guarantee], delta: float) -> float:
    """Return Σε at Σδ: (ε, δ) parts as they are, the others at equal shares of the δ left."""
    own = [part for part in parts if isinstance(part, EpsilonDelta)]
    left = delta - math.fsum(part.guaranteed_delta for part in own)
    if left < 0:
        return math.inf
    others = [part for part in parts if not isinstance(part, EpsilonDelta)]
    share = left / max(_count(others), 1)
    total = summed(part.guaranteed_epsilon for part in own)
    for part, number in Counter(others).items():
        if isinstance(part, DPSGD):
            step = DPSGD(
                noise_multiplier=part.noise_multiplier,
                sampling_rate=part.sampling_rate,
                relation=part.relation,
            )
            total += number * part.steps * step.epsilon(share)
        else:
            total += number * part.epsilon(share)
    return total


def _count(parts: Iterable[Guarantee]) -> int:
    return sum(part.steps if isinstance(part, DPSGD) else 1 for part in parts)
