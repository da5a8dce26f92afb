"""Several releases of the same data as one promise, and what each way of adding them up costs.

Conventions
-----------
As in :mod:`expost.risk.guarantee`. A release of DP-SGD is one step. Releases may be chosen after
seeing those before them; figures that need more say so.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from expost.risk._arguments import extended, level, rate, up
from expost.risk.dpsgd import DPSGD, checked, gaussian_loss
from expost.risk.guarantee import Guarantee, belief_after
from expost.risk.promises import EpsilonDelta, GaussianNoise, NormLaplaceNoise
from expost.rounding import fixed, upper_text
from expost.types import Audience, Neighbouring

__all__ = ["Composition", "CompositionComparison", "CompositionRow", "compare_compositions"]

# Laws closer together than this are bounded by those at it: squares must not underflow.
_LEAST = 1e-100
# Past these a law beside others is no longer resolved: Gaussian noise then promises nothing, and of
# norm-Laplace noise only its ε is used.
_LARGEST_MU = 1e8
_LARGEST_NORM_LAPLACE = 1e7
# Past this squares of a loss overflow, and nothing is promised.
_LARGEST_EPSILON = 1e100


@dataclass(frozen=True)
class Composition(Guarantee):
    """All of ``parts`` together: EpsilonDelta, GaussianNoise, NormLaplaceNoise, DPSGD, Composition.

    Formal guarantees
    -----------------
    Gaussian parts are one with μ² = Σμᵢ² (all figures but ``loss``); of pure parts
    ``epsilon(0)`` = ``loss(0)`` = Σε, exactly; one part is itself. Else the figures are those of
    the composed privacy-loss distribution, from above, in which an (ε, δ) promise stands as the
    worst mechanism that keeps it. ``loss`` bounds the evidence also of releases that react to those
    before them, so that of several Gaussian parts it is more than the quantile of √Σμᵢ²
    (``gaussian_loss``).
    """

    parts: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_flat(self.parts)))
        if not self.parts:
            raise InvalidInput("parts=(): must hold at least one promise.")
        relations = {
            part.relation is Neighbouring.REPLACE for part in self.parts if isinstance(part, DPSGD)
        }
        if len(relations) > 1:
            raise InvalidInput(
                "parts: hold DP-SGD both for a row removed and for a row replaced; state all for"
                " the same relation."
            )

    def delta(self, epsilon: float) -> float:
        """δ(ε) of all together."""
        epsilon = extended("epsilon", epsilon)
        if self._single is not None:
            return self._single.delta(epsilon)
        loss = self.privacy_loss
        return loss.told if epsilon == math.inf else checked(loss.delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 with δ(ε) ≤ ``delta``; infinite where there is none."""
        return self.epsilon_interval(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(low, high) around ε(δ) of the dominating pair; the second is what is promised."""
        delta = level("delta", delta)
        if isinstance(self._single, DPSGD):
            return self._single.epsilon_interval(delta)
        if self._single is not None:
            epsilon = self._single.epsilon(delta)
            return epsilon, epsilon
        low, high = self.privacy_loss.epsilon_interval(delta)
        return checked(low), checked(high)

    def loss(self, delta: float = 0.0) -> float:
        """The least b that the evidence for the truth passes with P ≤ ``delta``, in either world.

        P(∣ℓ∣ > b) is at most δ(1 + e^(−b)).
        """
        delta = level("delta", delta)
        if self._single is None:
            return checked(self.privacy_loss.loss(delta))
        if isinstance(self._single, GaussianNoise) and self._reacts:
            return gaussian_loss(self._single.mu, delta)
        return self._single.loss(delta)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The most rows that any test finds at this false-positive rate."""
        fpr = rate("false_positive_rate", false_positive_rate)
        if self._single is not None:
            return self._single.true_positive_rate(fpr)
        return up(checked(self.privacy_loss.true_positive_rate(fpr)), most=1.0)

    def describe(self) -> str:
        """'2 × epsilon = 1; Gaussian noise, mu = 0.5'."""
        counts = Counter(self.parts)
        return "; ".join(
            part.describe() if count == 1 else f"{count} × {part.describe()}"
            for part, count in counts.items()
        )

    @property
    def privacy_loss(self) -> PrivacyLoss:
        """The composed privacy-loss distribution."""
        return PrivacyLoss(steps=steps_of(self.parts))

    @cached_property
    def _single(self) -> Guarantee | None:
        """The one promise that all parts are, where there is one."""
        if len(self.parts) == 1:
            return self.parts[0]
        if all(_gaussian(part) is not None for part in self.parts):
            return GaussianNoise(mu=_together(self.parts))
        return None if steps_of(self.parts) else EpsilonDelta(epsilon=0.0)

    @property
    def _reacts(self) -> bool:
        """Whether a later release may depend on an earlier one: whether there is more than one."""
        return len(self.parts) > 1


def steps_of(parts: Iterable[Guarantee]) -> Steps:
    """The laws of the loss of all releases, equal ones counted, Gaussian ones as one."""
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
            case EpsilonDelta() if part.promised_epsilon > 0 or part.promised_delta > 0:
                counts[_response(part.promised_epsilon, part.promised_delta)] += 1
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


def _gaussian(part: Guarantee) -> GaussianNoise | None:
    if isinstance(part, GaussianNoise):
        return part
    return part.gaussian if isinstance(part, DPSGD) else None


def _together(parts: Iterable[Guarantee]) -> float:
    """√Σμ² of the Gaussian ones, rounded up."""
    found = [_gaussian(part) for part in parts]
    each = [gaussian.mu for gaussian in found if gaussian is not None]
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
    """What one way of adding up gives.

    ``loss`` and ``belief`` are passed with probability δ at most; ``times`` is ε over that of the
    privacy-loss distribution, what this way costs.
    """

    name: str
    epsilon: float
    loss: float
    belief: float
    advantage: float
    times: float
    note: str


@dataclass(frozen=True, kw_only=True)
class CompositionComparison(Displayed):
    """Four ways to add up the same releases, from the loosest to the tightest."""

    description: str
    releases: int
    delta: float
    prior: float
    rows: tuple[CompositionRow, ...]
    audience: Audience = Audience.PASS

    def row(self, name: str) -> CompositionRow:
        """The row of that name: sequential, rdp-mironov, rdp-tight or pld."""
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise InvalidInput(f"name={name!r}: must be one of {names}.")

    def lines(self) -> list[str]:
        """A table, and a line each on how it is done."""
        head = ("added up by", "epsilon", "times", "belief", "advantage")
        body = [
            (
                row.name,
                _shown(row.epsilon),
                f"{row.times:.3g}" if math.isfinite(row.times) else "-",
                _share(row.belief, certain=row.loss == math.inf),
                _share(row.advantage, certain=row.epsilon == math.inf),
            )
            for row in self.rows
        ]
        widths = [max(len(cells[column]) for cells in (head, *body)) for column in range(len(head))]
        table = [
            "  ".join(
                [
                    cells[0].ljust(widths[0]),
                    *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)),
                ]
            )
            for cells in (head, *body)
        ]
        passed = f"delta = {upper_text(self.delta)}; beliefs start from {self.prior:g}"
        if self.delta > 0:
            passed += f" and are passed with probability {upper_text(self.delta)} at most"
        notes = [f"{row.name}: {row.note}" for row in self.rows]
        return [f"{self.description}, added up; {passed}.", "", *table, "", *notes]

    def fields(self) -> dict[str, Any]:
        """The same for a program; infinite figures read 'infinity'."""
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
                    "belief": row.belief,
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
    """ε at ``delta``, belief and advantage of all parts together, by each way of adding them up.

    Sequential (D5.3 3.2): Σε at Σδ, with what δ is left after the parts' own split equally.
    Rényi divergences with Mironov's conversion (D5.3 4.3) and with dp_accounting's tighter one.
    The privacy-loss distribution.
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
                belief=belief_after(prior, loss),
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
    # DP-SGD every share asks for another curve, and more than one is not worth it.
    shares = (0.5,) if any(isinstance(part, DPSGD) for part in parts) else (0.5, 0.1, 0.01, 1e-4)
    loss = min(_summed(parts, share * delta) - math.log1p(-share) for share in shares)
    loss = min(loss, _summed(parts, 0.0))
    advantage = EpsilonDelta(epsilon=epsilon, delta=delta).advantage
    note = "each release's epsilon at an equal share of delta, added; beliefs from a part of delta."
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
    """ε of a conversion; at δ = 0, order ∞: the largest loss."""
    largest = PrivacyLoss(steps=steps).largest
    told = revealed(steps)
    if delta <= told:
        return largest if delta == told else math.inf
    if not steps:
        return 0.0
    return min(largest, max(float(convert(steps, delta).value), 0.0))


def _evidence(steps: Steps, delta: float, convert: Any) -> float:
    """What ℓ passes with probability ``delta`` at most, for every pair.

    A conversion bounds ℓ itself where no release may tell all. Else who tells all with probability
    δ' can as well spread that over finite losses, and only P(ℓ > ε + γ) ≤ δ(ε)/(1 − e^(−γ)) is left
    (erratum 10).
    """
    told = revealed(steps)
    if told == 0:
        return _renyi(steps, delta, convert)
    if not told < delta:
        return math.inf
    parts = [told + share * (delta - told) for share in (0.0, 0.1, 0.5)]
    return min(_renyi(steps, part, convert) - math.log1p(-part / delta) for part in parts)


def _summed(parts: Sequence[Guarantee], delta: float) -> float:
    """Σε at Σδ: an (ε, δ) part as it is, the others at equal shares of what is left of δ."""
    own = [part for part in parts if isinstance(part, EpsilonDelta)]
    left = delta - math.fsum(part.promised_delta for part in own)
    if left < 0:
        return math.inf
    others = [part for part in parts if not isinstance(part, EpsilonDelta)]
    share = left / max(_count(others), 1)
    total = summed(part.promised_epsilon for part in own)
    for part, count in Counter(others).items():
        if isinstance(part, DPSGD):
            step = DPSGD(
                noise_multiplier=part.noise_multiplier,
                sampling_rate=part.sampling_rate,
                relation=part.relation,
            )
            total += count * part.steps * step.epsilon(share)
        else:
            total += count * part.epsilon(share)
    return total


def _count(parts: Iterable[Guarantee]) -> int:
    return sum(part.steps if isinstance(part, DPSGD) else 1 for part in parts)


def _share(value: float, *, certain: bool) -> str:
    """Four decimals, rounded up; what is short of certain never reads as 1."""
    shown = fixed(value, 4, "up")
    return shown if certain or float(shown) < 1 else "< 1"


def _shown(value: float) -> str:
    return "infinite" if value == math.inf else upper_text(value, 4)
