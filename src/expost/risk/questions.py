"""What a promise allows: the routes from each kind of promise to its figures.

Conventions
-----------
δ     of an (ε, δ) promise is that of each release, kδ of all k together (sequential composition);
      with μ or DP-SGD it is where their ε is told, for all releases together.
"""

import math
from dataclasses import dataclass, replace

from expost import _checks
from expost.errors import InvalidInput
from expost.risk import paper
from expost.risk._arguments import count, level
from expost.risk.answer import Figure, Identifiability, Route
from expost.risk.composition import Composition, CompositionComparison, compare_compositions
from expost.risk.curves import tenfold
from expost.risk.dpsgd import DPSGD
from expost.risk.figures import (
    Setting,
    Told,
    delta_figures,
    epsilon_figure,
    limit_figures,
    risk_figures,
)
from expost.risk.forward import together_gaussian
from expost.risk.guarantee import Guarantee
from expost.risk.inverse import mu_from_epsilon
from expost.risk.promises import EpsilonDelta, GaussianNoise
from expost.types import Neighbouring

__all__ = [
    "Asked",
    "Training",
    "answer",
    "any_route",
    "dpsgd_route",
    "gaussian_route",
    "of_dpsgd",
    "of_epsilon",
    "of_mu",
    "of_promise",
    "paper_route",
    "repeated",
]

# More take minutes, one by one.
_MOST_RELEASES = 10_000
_NO_DELTA = (
    "Without a delta no belief is told: under Gaussian noise none is bounded for certain; name a"
    " delta well below one over the number of rows."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The attacker, and how often a bound may fail.

    ``exceeded`` None: δ where the noise is known, ten times δ where (ε, δ) alone is.
    """

    prior: float = 0.5
    delta: float | None = None
    exceeded: float | None = None
    false_positive_rate: float = 0.01
    releases: int = 1

    def __post_init__(self) -> None:
        checked: dict[str, float] = {
            "prior": _checks.probability("prior", self.prior),
            "false_positive_rate": _checks.probability(
                "false_positive_rate", self.false_positive_rate
            ),
            "releases": count("releases", self.releases),
        }
        if not self.releases <= _MOST_RELEASES:
            raise InvalidInput(
                f"releases={self.releases!r}: must be at most {_MOST_RELEASES:,}; of more, Gaussian"
                " noise has mu times their root, and DP-SGD so many times the steps."
            )
        if self.delta is not None:
            checked["delta"] = level("delta", self.delta)
        if self.exceeded is not None:
            checked["exceeded"] = level("exceeded", self.exceeded)
        # Plain numbers from here on: what is shown and written is no numpy scalar.
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def setting(self, *, each: bool) -> Setting:
        """δ of all releases together, which was named for ``each`` of them or for all."""
        delta = (self.delta or 0.0) * (self.releases if each else 1)
        if not delta < 1:
            raise InvalidInput(
                f"releases={self.releases!r}: with delta={self.delta!r} each, all is revealed in"
                " the end; take fewer releases or a smaller delta."
            )
        exceeded = tenfold(delta) if self.exceeded is None else self.exceeded
        if each and delta > 0 and not exceeded > delta:
            raise InvalidInput(
                f"exceeded={exceeded!r}: must be above delta={delta!r}, the chance with which all"
                " may be revealed."
            )
        return Setting(
            prior=self.prior,
            delta=delta,
            exceeded=exceeded,
            known=delta if self.exceeded is None else exceeded,
            false_positive_rate=self.false_positive_rate,
            releases=self.releases,
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """How DP-SGD runs: ``steps`` Poisson batches of a share ``sampling_rate`` of the rows."""

    sampling_rate: float = 1.0
    steps: int = 1
    relation: Neighbouring = Neighbouring.REMOVE

    def with_noise(self, noise_multiplier: float) -> DPSGD:
        """The promise of it."""
        return DPSGD(
            noise_multiplier=noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.steps,
            relation=self.relation,
        )


def of_epsilon(epsilon: float, asked: Asked) -> Identifiability:
    """What any (ε, δ) mechanism allows, and Gaussian noise that is calibrated to it."""
    each = EpsilonDelta(epsilon=epsilon, delta=asked.delta or 0.0)
    setting = asked.setting(each=True)
    routes = [any_route(repeated(each, asked.releases))]
    told: dict[str, dict[str, float]] = {}
    if each.promised_delta > 0 and 0 < each.promised_epsilon < math.inf:
        mu = mu_from_epsilon(each.promised_epsilon, delta=each.promised_delta)
        routes.append(gaussian_route(together_gaussian(mu, asked.releases), asked.releases))
        told |= {"mu": {"gaussian": mu}, "sigma": {"gaussian": _inverse(mu)}}
        if asked.releases == 1:
            told["epsilon"] = {"gaussian": each.promised_epsilon}
    values, note = _paper_epsilon(each, asked)
    routes += paper_route(note)
    return answer(
        f"{_times(asked.releases)}{each.describe()}",
        routes,
        setting,
        Told(by={**told, **values}),
        comparison=_compared([each] * asked.releases, setting),
    )


def of_mu(mu: float, asked: Asked) -> Identifiability:
    """What Gaussian noise of σ = sensitivity/μ allows."""
    each = GaussianNoise(mu=mu)
    setting = asked.setting(each=False)
    all_of_them = together_gaussian(each.mu, asked.releases)
    routes = [gaussian_route(all_of_them, asked.releases), *_at_delta(all_of_them, setting)]
    values, note = _paper_mu(all_of_them.mu, setting)
    routes += paper_route(note)
    return answer(
        f"{_times(asked.releases)}{each.describe()}",
        routes,
        setting,
        Told(by={"sigma": {"gaussian": _inverse(each.mu)} if each.mu > 0 else {}, **values}),
        comparison=_compared([each] * asked.releases, setting),
        notices=() if setting.known > 0 else (_NO_DELTA,),
    )


def of_dpsgd(noise_multiplier: float, training: Training, asked: Asked) -> Identifiability:
    """What DP-SGD allows, by its privacy-loss distribution."""
    each, setting = training.with_noise(noise_multiplier), asked.setting(each=False)
    whole = replace(each, steps=each.steps * asked.releases)
    routes = [dpsgd_route(whole), *_at_delta(whole, setting)]
    comparison = _compared([each] * asked.releases, setting)
    values, note = _paper_dpsgd(whole, comparison, setting)
    routes += paper_route(note)
    return answer(
        f"{_times(asked.releases)}{each.describe()}",
        routes,
        setting,
        Told(by=values),
        comparison=comparison,
        notices=() if setting.known > 0 else (_NO_DELTA,),
    )


def of_promise(promise: Guarantee, asked: Asked, *, what: str = "") -> Identifiability:
    """What a model's own promise allows, beside that of any mechanism with its ε."""
    if isinstance(promise, EpsilonDelta):
        if asked.delta not in (None, promise.promised_delta):
            raise InvalidInput(
                f"delta={asked.delta!r}: the promise has its own, {promise.promised_delta!r}; leave"
                " it out."
            )
        own = replace(asked, delta=promise.promised_delta)
        return _named(of_epsilon(promise.promised_epsilon, own), what)
    if isinstance(promise, GaussianNoise):
        return _named(of_mu(promise.mu, asked), what)
    setting = asked.setting(each=False)
    whole = repeated(promise, asked.releases)
    routes = [
        Route(key="model", name="this model", promise=whole, note="by the law of its own noise."),
        *_at_delta(whole, setting),
    ]
    return answer(
        f"{_times(asked.releases)}{what or promise.describe()}",
        routes,
        setting,
        Told(),
        comparison=_compared([promise] * asked.releases, setting),
    )


def answer(
    question: str,
    routes: list[Route],
    setting: Setting,
    told: Told,
    *,
    is_goal: bool = False,
    sentences: dict[str, str] | None = None,
    comparison: CompositionComparison | None = None,
    notices: tuple[str, ...] = (),
) -> Identifiability:
    """All lines of the table, in the order in which they are read."""
    sentences = sentences or {}
    routes = [replace(route, exceeded=setting.exceeded_by(route.promise)) for route in routes]
    epsilon = epsilon_figure(
        routes, setting, told, sentence=sentences.get("epsilon", "") if is_goal else None
    )
    figures: list[Figure] = [] if epsilon is None else [epsilon]
    if epsilon is not None and setting.releases == 1:
        # What is known of one release at its own ε says little without the curve around it.
        first = next(iter(epsilon.by.values()))
        figures += delta_figures(routes, first) if 0 < first < math.inf else []
    figures += limit_figures(told, sentences, setting.releases)
    figures += risk_figures(routes, setting, told)
    return Identifiability(
        question=question,
        is_goal=is_goal,
        routes=tuple(routes),
        figures=tuple(figures),
        prior=setting.prior,
        delta=setting.delta,
        exceeded=routes[0].exceeded,
        false_positive_rate=setting.false_positive_rate,
        releases=setting.releases,
        comparison=comparison,
        notices=notices,
    )


def repeated(promise: Guarantee, releases: int) -> Guarantee:
    """So many independent releases of one promise each, as one."""
    if releases == 1:
        return promise
    match promise:
        case GaussianNoise(mu=mu):
            return together_gaussian(mu, releases)
        case DPSGD(steps=steps):
            return replace(promise, steps=steps * releases)
        case _:
            return Composition(parts=(promise,) * releases)


def any_route(promise: Guarantee) -> Route:
    """Of a mechanism of which nothing but (ε, δ) is known."""
    return Route(
        key="any",
        name="any mechanism",
        promise=promise,
        note="where nothing but epsilon and delta is known of the mechanism; tight.",
    )


def gaussian_route(promise: GaussianNoise, releases: int) -> Route:
    """Of Gaussian noise."""
    # What reacts to releases before it can keep the evidence that there is.
    fixed = "" if releases == 1 else "; beliefs for releases that are all fixed beforehand"
    return Route(
        key="gaussian",
        name="Gaussian noise",
        promise=promise,
        note=f"sigma = sensitivity / mu, calibrated exactly (Balle and Wang 2018){fixed}.",
    )


def dpsgd_route(promise: Guarantee) -> Route:
    """Of DP-SGD."""
    return Route(
        key="dpsgd",
        name="DP-SGD",
        promise=promise,
        note="for an attacker who sees every step; by its privacy-loss distribution.",
    )


def paper_route(note: str) -> list[Route]:
    """By the formulas of D5.3, where they have something to say."""
    return [Route(key="paper", name="paper (D5.3)", promise=None, note=note)] if note else []


def _at_delta(promise: Guarantee, setting: Setting) -> list[Route]:
    """What is left of a promise where only its ε at δ is told."""
    epsilon = promise.epsilon(setting.delta)
    if not 0 < epsilon < math.inf:
        return []
    return [any_route(EpsilonDelta(epsilon=epsilon, delta=setting.delta))]


def _paper_epsilon(each: EpsilonDelta, asked: Asked) -> tuple[dict[str, dict[str, float]], str]:
    """Thm 2 and, of one release, Prop. 2 or Thm 3; the paper's attacker is undecided."""
    epsilon, delta = each.promised_epsilon, each.promised_delta
    if asked.prior != 0.5 or epsilon == math.inf:
        return {}, ""
    values = {"belief": {"paper": paper.belief(epsilon * asked.releases)}}
    note = "belief by Thm 2"
    if delta > 0:
        note += (
            " (ii), said to hold but with probability delta, which not every mechanism keeps"
            " (erratum 10)"
        )
    if asked.releases == 1 and delta == 0:
        values["advantage"] = {"paper": paper.general_advantage(epsilon)}
        note += "; advantage by Prop. 2, which is not tight (erratum 9)"
    elif asked.releases == 1:
        values["advantage"] = {"paper": paper.gaussian_advantage(epsilon, delta)}
        note += "; advantage by Thm 3, for Gaussian noise of the classical sigma, which is"
        note += " private for epsilon < 1 only" + (": not here" if epsilon >= 1 else "")
    return values, f"{note}."


def _paper_mu(mu: float, setting: Setting) -> tuple[dict[str, dict[str, float]], str]:
    """(4.7) and Sec. 4.3: Gaussian noise under RDP."""
    if setting.prior != 0.5 or not 0 < mu < math.inf:
        return {}, ""
    # Exact at every order: ε_RDP = αμ²/2.
    values = {"advantage": {"paper": paper.rdp_advantage(mu * mu, 2.0)}}
    note = "advantage by Sec. 4.3, exact for Gaussian noise"
    if setting.delta > 0:
        values["belief"] = {"paper": paper.rdp_belief(mu, setting.delta)}
        note = f"belief by (4.7), from Rényi divergences, but with probability delta; {note}"
    return values, f"{note}."


def _paper_dpsgd(
    whole: DPSGD, comparison: CompositionComparison | None, setting: Setting
) -> tuple[dict[str, dict[str, float]], str]:
    """Sec. 4.3: of whole batches as for Gaussian noise, of samples ε and belief alone."""
    if whole.gaussian is not None:
        return _paper_mu(whole.gaussian.mu, setting)
    if comparison is None or setting.prior != 0.5:
        return {}, ""
    row = comparison.row("rdp-mironov")
    if not row.epsilon < math.inf:
        return {}, ""
    values = {"epsilon": {"paper": row.epsilon}, "belief": {"paper": row.belief}}
    return values, "by (4.7), from Rényi divergences, but with probability delta."


def _compared(parts: list[Guarantee], setting: Setting) -> CompositionComparison | None:
    many = len(parts) > 1 or (isinstance(parts[0], DPSGD) and parts[0].steps > 1)
    if not many or (setting.delta == 0 and math.isinf(parts[0].epsilon(0.0))):
        return None
    # At the δ of (ε, δ) promises themselves no belief is bounded.
    slipping = any(isinstance(part, EpsilonDelta) and part.promised_delta > 0 for part in parts)
    delta = setting.exceeded if slipping else setting.delta
    return compare_compositions(parts, delta=delta, prior=setting.prior)


def _named(found: Identifiability, what: str) -> Identifiability:
    return replace(found, question=f"{what}: {found.question}") if what else found


def _times(releases: int) -> str:
    return "" if releases == 1 else f"{releases:,} releases of "


def _inverse(mu: float) -> float:
    """σ/sensitivity, rounded up."""
    return math.nextafter(1 / mu, math.inf) if mu < math.inf else 0.0
