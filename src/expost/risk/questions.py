"""Answers about guarantees: what each kind allows an attacker, and which of them keeps a goal.

Conventions
-----------
δ        of an (ε, δ) guarantee is that of each release, kδ of all k together (sequential
         composition); with μ or DP-SGD it is where their ε is stated, for all releases together.
goal     of k releases the ε of each is that of all, for k·δ, over k (sequential composition); μ is
         over √k, which keeps a posterior where all releases are fixed beforehand and every other
         goal always; DP-SGD runs k times its steps. Everything is rounded towards more noise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from expost import _checks
from expost.errors import InvalidInput
from expost.numbers import at_least, at_most, lower_text, share
from expost.risk.calibrate import POSTERIOR_GOALS, calibrate
from expost.risk.composition import CompositionComparison, compare_compositions, repeat
from expost.risk.curves import tenfold
from expost.risk.dpsgd import DPSGD
from expost.risk.epsilon_delta import EpsilonDelta
from expost.risk.figures import state
from expost.risk.gaussian import GaussianNoise
from expost.risk.guarantee import Guarantee, count, down, extended, level
from expost.risk.statement import DIGITS, Identifiability, Parameters, Route, Setting
from expost.types import Neighbouring

__all__ = ["Scenario", "Training", "of_dpsgd", "of_epsilon", "of_goal", "of_guarantee", "of_mu"]

# More take minutes, release by release.
_MOST_RELEASES = 10_000
_AS_GIVEN = 17
_NO_DELTA = (
    "Without a delta there is no posterior: Gaussian noise bounds none with certainty. Name a delta"
    " well below one over the number of rows."
)
_NO_DELTA_GOAL = (
    "Without a delta the goal is kept with certainty, which no Gaussian noise does. Name a delta"
    " well below one over the number of rows for the noise that keeps it except with a small"
    " chance."
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The attacker, the number of releases, and how often a bound may fail.

    ``exceeded`` None: δ where the noise is known, ten times δ where (ε, δ) alone is.
    ``baselines`` are those of attacks beyond membership (:func:`expost.risk.attacks.baselines_of`).
    """

    prior: float = 0.5
    delta: float | None = None
    exceeded: float | None = None
    false_positive_rate: float = 0.01
    releases: int = 1
    baselines: Mapping[str, float] = field(default_factory=dict)

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
        """Return the setting with δ of all releases together, given for ``each`` or for all."""
        delta = (self.delta or 0.0) * (self.releases if each else 1)
        if not delta < 1:
            raise InvalidInput(
                f"releases={self.releases!r}: with delta={self.delta!r} each, the deltas sum to 1"
                " or more; use fewer releases or a smaller delta."
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
            baselines=self.baselines,
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """The schedule of DP-SGD: ``steps`` Poisson batches of a share ``sampling_rate`` of rows."""

    sampling_rate: float = 1.0
    steps: int = 1
    relation: Neighbouring = Neighbouring.REMOVE


def of_epsilon(epsilon: float, scenario: Scenario) -> Identifiability:
    """Return what any (ε, δ) mechanism allows, and Gaussian noise that is calibrated to it."""
    return _of_epsilon(epsilon, scenario, is_of_model=False)


def _of_epsilon(epsilon: float, scenario: Scenario, *, is_of_model: bool) -> Identifiability:
    """Return the same; a model of another mechanism than Gaussian noise gets no such column."""
    each = EpsilonDelta(epsilon=epsilon, delta=scenario.delta or 0.0)
    setting = scenario.setting(each=True)
    routes = [_any(repeat(each, setting.releases))]
    parameters: Parameters = {}
    if each.has_delta and 0 < each.guaranteed_epsilon < math.inf and not is_of_model:
        noise = calibrate(
            GaussianNoise, epsilon=each.guaranteed_epsilon, delta=each.guaranteed_delta
        )
        routes.append(_gaussian(repeat(noise, setting.releases), setting))
        parameters |= {"mu": {"gaussian": noise.mu}, "sigma": {"gaussian": _sigma(noise.mu)}}
        if setting.releases == 1:
            parameters["epsilon"] = {"gaussian": each.guaranteed_epsilon}
    return state(
        f"{setting.of_releases}{each.describe()}",
        routes,
        setting,
        parameters,
        comparison=_compare(each, setting),
    )


def of_mu(mu: float, scenario: Scenario) -> Identifiability:
    """Return what Gaussian noise of σ = sensitivity/μ allows."""
    each, setting = GaussianNoise(mu=mu), scenario.setting(each=False)
    whole = repeat(each, setting.releases)
    return state(
        f"{setting.of_releases}{each.describe()}",
        [_gaussian(whole, setting), *_at_delta(whole, setting)],
        setting,
        {"sigma": {"gaussian": _sigma(each.mu)} if each.mu > 0 else {}},
        comparison=_compare(each, setting),
        notices=() if setting.known > 0 else (_NO_DELTA,),
    )


def of_dpsgd(noise_multiplier: float, training: Training, scenario: Scenario) -> Identifiability:
    """Return what DP-SGD allows, by its privacy-loss distribution."""
    each = DPSGD(noise_multiplier=noise_multiplier, **vars(training))
    setting = scenario.setting(each=False)
    whole = repeat(each, setting.releases)
    return state(
        f"{setting.of_releases}{each.describe()}",
        [_dpsgd(whole), *_at_delta(whole, setting)],
        setting,
        {},
        comparison=_compare(each, setting),
        notices=() if setting.known > 0 else (_NO_DELTA,),
    )


def of_guarantee(
    guarantee: Guarantee, scenario: Scenario, *, description: str = ""
) -> Identifiability:
    """Return what a model's own guarantee allows, and what any mechanism with its ε does."""
    if isinstance(guarantee, EpsilonDelta):
        own = guarantee.guaranteed_delta
        if scenario.delta not in (None, own):
            raise InvalidInput(
                f"delta={scenario.delta!r}: the guarantee has its own, {own!r}; leave it out."
            )
        stated = _of_epsilon(
            guarantee.guaranteed_epsilon,
            replace(scenario, delta=own),
            is_of_model=bool(description),
        )
        return _described(stated, description)
    if isinstance(guarantee, GaussianNoise):
        return _described(of_mu(guarantee.mu, scenario), description)
    setting = scenario.setting(each=False)
    whole = repeat(guarantee, setting.releases)
    own_route = Route(
        key="model", name="this model", guarantee=whole, note="by the law of its own noise."
    )
    return state(
        f"{setting.of_releases}{description or guarantee.describe()}",
        [own_route, *_at_delta(whole, setting)],
        setting,
        {},
        comparison=_compare(guarantee, setting),
    )


def of_goal(
    name: str, value: float, scenario: Scenario, training: Training | None = None
) -> Identifiability:
    """Return which guarantees keep a goal, and all their other figures."""
    setting = scenario.setting(each=True)
    value, is_posterior = extended(name, value), name in POSTERIOR_GOALS
    goal = {
        name: value,
        "prior": setting.prior,
        "false_positive_rate": setting.false_positive_rate,
    }
    generic = calibrate(
        EpsilonDelta,
        **goal,
        delta=setting.delta,
        exceeded=setting.exceeded if setting.delta > 0 else None,
    )
    routes, epsilon, releases = [_any(generic)], generic.guaranteed_epsilon, setting.releases
    parameters: Parameters = {"epsilon": {"any": epsilon}}
    sentences = {}
    if releases == 1:
        sentences["epsilon"] = _epsilon_goal_sentence(epsilon, setting)
    else:
        # Down, so that k times it is not above the ε of all.
        each = math.nextafter(epsilon / releases, 0.0)
        parameters["epsilon_each"] = {"any": each}
        sentences["epsilon_each"] = _epsilon_goal_sentence(each, setting)
    if setting.known > 0 or not is_posterior:
        noise = calibrate(GaussianNoise, **goal, delta=setting.known)
        # Down, so that the noise of all releases is at least that of the route.
        mu = noise.mu if releases == 1 else down(noise.mu / math.sqrt(releases))
        sigma = _sigma(mu)
        routes.append(_gaussian(noise, setting))
        parameters |= {"mu": {"gaussian": mu}, "sigma": {"gaussian": sigma}}
        sentences["mu"] = (
            f"Gaussian noise with a standard deviation of {at_most(sigma, DIGITS)} times the"
            " sensitivity keeps it."
        )
    if training is not None:
        if is_posterior and not setting.known > 0:
            raise InvalidInput(
                f"delta=None: DP-SGD keeps {name}={value!r} except with a small chance; give a"
                " delta well below one over the number of rows."
            )
        run = replace(training, steps=training.steps * releases)
        training_noise = calibrate(DPSGD, **goal, delta=setting.known, **vars(run))
        multiplier = training_noise.noise_multiplier
        routes.append(_dpsgd(training_noise))
        parameters["noise_multiplier"] = {"dpsgd": multiplier}
        sentences["noise_multiplier"] = (
            f"DP-SGD with a noise multiplier of {at_most(multiplier, DIGITS)} keeps it, over"
            f" {run.steps:,} steps at a sampling rate of {run.sampling_rate:g}."
        )
    words = _goal_words(name, value, setting)
    return state(
        words if releases == 1 else f"{words} over {releases:,} releases",
        routes,
        setting,
        parameters,
        goal_sentences=sentences,
        notices=(_NO_DELTA_GOAL,) if is_posterior and not setting.known > 0 else (),
    )


def _goal_words(name: str, value: float, setting: Setting) -> str:
    prior = setting.prior
    start = "" if prior == 0.5 else f" from a prior of {share(prior)}"
    match name:
        case "posterior":
            return f"a posterior of at most {share(value)}{start}"
        case "one_in":
            return f"a posterior of at most 1 in {at_least(value, _AS_GIVEN)}{start}"
        case "advantage":
            return f"a membership advantage of at most {at_least(value, _AS_GIVEN)}"
        case _:
            return (
                f"a true-positive rate of at most {share(value)} at a false-positive rate"
                f" of {share(setting.false_positive_rate)}"
            )


def _epsilon_goal_sentence(epsilon: float, setting: Setting) -> str:
    each = "" if setting.releases == 1 else " for each release"
    at = ""
    if setting.delta > 0:
        at = f" at delta = {lower_text(setting.delta / setting.releases, 3)}"
    return f"Any mechanism with epsilon = {at_least(epsilon, DIGITS)}{at}{each} keeps it."


# -- the routes ------------------------------------------------------------------------------------


def _any(guarantee: Guarantee) -> Route:
    return Route(
        key="any",
        name="any mechanism",
        guarantee=guarantee,
        note="where nothing but epsilon and delta is known of the mechanism; tight.",
    )


def _gaussian(guarantee: Guarantee, setting: Setting) -> Route:
    # A release that reacts to those before it can keep the evidence that there is.
    fixed = "" if setting.releases == 1 else "; posteriors for releases that are fixed beforehand"
    return Route(
        key="gaussian",
        name="Gaussian noise",
        guarantee=guarantee,
        note=f"sigma = sensitivity / mu, calibrated exactly (Balle and Wang 2018){fixed}.",
    )


def _dpsgd(guarantee: Guarantee) -> Route:
    return Route(
        key="dpsgd",
        name="DP-SGD",
        guarantee=guarantee,
        note="for an attacker who sees every step; by its privacy-loss distribution.",
    )


def _at_delta(guarantee: Guarantee, setting: Setting) -> list[Route]:
    """Return the route of a guarantee of which only ε at δ is stated."""
    epsilon = guarantee.epsilon(setting.delta)
    if not 0 < epsilon < math.inf:
        return []
    return [_any(EpsilonDelta(epsilon=epsilon, delta=setting.delta))]


def _compare(each: Guarantee, setting: Setting) -> CompositionComparison | None:
    many = setting.releases > 1 or (isinstance(each, DPSGD) and each.steps > 1)
    if not many or (setting.delta == 0 and math.isinf(each.epsilon(0.0))):
        return None
    # At the δ of (ε, δ) guarantees themselves no posterior is bounded.
    delta = setting.exceeded if each.has_delta else setting.delta
    return compare_compositions([each] * setting.releases, delta=delta, prior=setting.prior)


def _described(stated: Identifiability, description: str) -> Identifiability:
    if not description:
        return stated
    return replace(stated, question=f"{description}: {stated.question}")


def _sigma(mu: float) -> float:
    """Return σ/sensitivity = 1/μ, rounded up."""
    return math.nextafter(1 / mu, math.inf) if mu < math.inf else 0.0
