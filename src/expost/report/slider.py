"""The expected figures over ε on a page: exact, or at the ε that were tried.

Under output perturbation a row's loss depends on ε through scale(ε)·distance alone. The page holds
distances of rows and the tables of :mod:`expost.report.law_table`, and computes the same figures in
the browser at any ε. Sampled losses have steps: the ε that were tried, with the figures there. The
losses of the released model itself do not depend on the slider.

E∣ℓ∣ grows with the distance, so that its quantiles over rows are its values at quantiles of the
distance: distances at a few hundred ranks stand for all rows, without error at those ranks.
"""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from expost._order import OrderStatistics
from expost.errors import InvalidInput
from expost.mechanisms import ClosedForm
from expost.numbers import figure, nats, number, percent, rounded_down, share
from expost.profiles.profile import Profile
from expost.release import Release
from expost.report.document import Facts, Text, Widget
from expost.report.law_table import LawTable, Pieces, law_table, scale_table
from expost.types import IntArray, Neighbouring

if TYPE_CHECKING:
    from expost.epsilon.choice import EpsilonChoice
    from expost.epsilon.sampled import SampledSweep

__all__ = [
    "SHARES",
    "ExactSlider",
    "ExpectedFigures",
    "SliderData",
    "Step",
    "curve_ranks",
    "epsilon_range",
    "slider_of_choice",
    "slider_of_profile",
    "slider_widget",
]

# Shares of the rows whose expected exposures are shown; 1: the largest.
SHARES = (0.5, 0.9, 0.99, 1.0)
_POINTS = 400
# The slider of a profile reaches at least _AXIS, and _REACH times past the ε of the model.
_AXIS, _REACH = (0.01, 100.0), 100.0
# More decades than this around an extreme ε are left out.
_LONGEST = 1e10
# How far the range of a choice of ε reaches past an end of interest that lies at its edge.
_MARGIN = 2.0
# A guess that is wrong less often than this cannot be distinguished from one that never is.
_MOST_TIMES = 1e9


@dataclass(frozen=True, kw_only=True)
class Step:
    """The figures at one ε: expected exposures at ``SHARES``, and of the most exposed row.

    Parameters
    ----------
    posterior : float
        Its upper limit at the quantile of the limit, for the most exposed row.
    error : float
        The largest standard error of the exposures.
    """

    epsilon: float
    exposures: tuple[float, ...]
    posterior: float
    error: float

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < math.inf and len(self.exposures) == len(SHARES)):
            raise InvalidInput("steps: each must have a positive ε, and a figure for each share.")


@dataclass(frozen=True, kw_only=True)
class ExactSlider:
    """Everything that expected figures are computed from, at any ε from ``low`` to ``high``.

    Parameters
    ----------
    scale : Pieces
        log(scale(ε)/ε) over log ε.
    ranks, distances : tuple[int, ...], tuple[float, ...]
        Of at most 400 rows: the ``ranks``-th largest distances of them all.
    quantiles : tuple[float, ...]
        The distances at ``SHARES``.
    farthest : float
        The upper end of the largest distance, for the posterior and the advantage.
    error : float
        The relative error of a figure: the errors of both tables.
    """

    law: LawTable
    scale: Pieces
    ranks: tuple[int, ...]
    distances: tuple[float, ...]
    quantiles: tuple[float, ...]
    farthest: float
    error: float

    def __post_init__(self) -> None:
        if len(self.ranks) != len(self.distances) or len(self.quantiles) != len(SHARES):
            raise InvalidInput("distances: must be one for each rank, and one for each share.")
        if not all(0 <= at < math.inf for at in (*self.distances, *self.quantiles, self.farthest)):
            raise InvalidInput("distances: must be finite numbers of at least 0.")

    def separation(self, epsilon: float, distance: float) -> float:
        """Return scale(ε)·distance."""
        return epsilon * math.exp(self.scale(math.log(epsilon))) * distance


@dataclass(frozen=True, kw_only=True)
class ExpectedFigures:
    """The figures at one ε: exposures at ``SHARES``, and of the most exposed row.

    Attributes
    ----------
    wrong : float | None
        A guess from a prior of ½ is wrong once in so many times, 2/(1 − advantage): from 2 (random
        guessing) to ∞.
    """

    exposures: tuple[float, ...]
    posterior: float
    advantage: float | None

    @property
    def by_share(self) -> tuple[tuple[float, float], ...]:
        """Pairs of a share of the rows and its largest exposure."""
        return tuple(zip(SHARES, self.exposures, strict=True))

    @property
    def wrong_text(self) -> str:
        """How often a guess is wrong, in words; never is not stated."""
        if self.wrong is None:
            return "not known"
        if not self.wrong < _MOST_TIMES:
            return f"less than 1 time in {number(_MOST_TIMES)}"
        return f"1 time in {number(self.wrong, 'up')}"

    @property
    def wrong(self) -> float | None:
        """1 over the probability (1 − advantage)/2 that the best guess is wrong."""
        if self.advantage is None:
            return None
        return 2 / (1 - self.advantage) if self.advantage < 1 else math.inf


@dataclass(frozen=True, kw_only=True)
class SliderData:
    """A slider over ε from ``low`` to ``high``, first at ``start``: ``exact``, or with ``steps``.

    Parameters
    ----------
    start_label : str
        The meaning of the ε at ``start``.
    unit : str
        Row, candidate or person.
    prior : float
        The attacker's prior, for the posterior.
    absent : bool, default=False
        Whether the posterior is that of absence: the rows are not in the data.
    fixed_gradients : bool, default=False
        Whether distances are lengths of gradients at one model, so that the law is exact for these
        alone.
    """

    low: float
    high: float
    start: float
    start_label: str
    unit: str
    prior: float
    absent: bool = False
    fixed_gradients: bool = False
    exact: ExactSlider | None = None
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high < math.inf:
            raise InvalidInput("slider: its ε must start between two positive ends.")
        if (self.exact is None) != bool(self.steps):
            raise InvalidInput("slider: must have either a law or steps.")

    @property
    def accuracy(self) -> float:
        """The power of ten, not below the exact slider's error, that is shown for it."""
        assert self.exact is not None
        return 10.0 ** math.ceil(math.log10(max(self.exact.error, 1e-15)))

    def figures(self, epsilon: float) -> ExpectedFigures:
        """Return the figures at ε as the page computes them; of steps, those at the nearest."""
        if self.exact is None:
            step = self.nearest(epsilon)
            return ExpectedFigures(
                exposures=step.exposures, posterior=step.posterior, advantage=None
            )
        exact, law = self.exact, self.exact.law
        most = exact.separation(epsilon, exact.farthest)
        return ExpectedFigures(
            exposures=tuple(
                law.exposure_at(exact.separation(epsilon, distance)) for distance in exact.quantiles
            ),
            posterior=law.posterior_at(most),
            advantage=law.advantage_at(most),
        )

    def nearest(self, epsilon: float) -> Step:
        """Return the step whose ε is nearest on a log scale."""
        return min(self.steps, key=lambda step: abs(math.log(step.epsilon / epsilon)))


def slider_of_profile(profile: Profile, release: Release | None = None) -> SliderData | None:
    """Return the slider of a profile; None if no law over ε is known.

    Parameters
    ----------
    release : Release, optional
        The profiled model, whose mechanism determines how the noise depends on ε.
    """
    mechanism = None if release is None else release.mechanism.closed_form
    if mechanism is None or not mechanism.is_private:
        return None
    digest = profile.digest
    if not digest.distance.largest > 0 or not _is_of(profile, mechanism):
        return None
    low, high = _axis_around(mechanism.epsilon)
    people = "row" if profile.relation is Neighbouring.REMOVE else "candidate"
    return SliderData(
        low=low,
        high=high,
        start=mechanism.epsilon,
        start_label="the ε of this model",
        unit=people if profile.owner is None else "person",
        prior=0.5,
        absent=profile.relation is Neighbouring.ADD,
        exact=_exact(mechanism, digest.distance, digest.farthest, 0.5, (low, high)),
    )


def slider_of_choice(choice: "EpsilonChoice") -> SliderData | None:
    """Return the slider of a choice of ε; None if no row moves the model."""
    # Imported here and below: a profile has a slider without any choice of ε.
    from expost.epsilon.sampled import SampledSweep
    from expost.epsilon.sweep import LawSweep

    sweep = choice.sweep
    low, high = epsilon_range(choice)
    start_label = "the recommended ε"
    if choice.recommended is None:
        start, start_label = math.sqrt(low * high), "the centre of the range"
    else:
        start = min(max(rounded_down(choice.recommended), low), high)
    if isinstance(sweep, LawSweep):
        distances, prior = sweep.distances, choice.limit.prior
        if not distances.largest > 0:
            return None
        return SliderData(
            low=low,
            high=high,
            start=start,
            start_label=start_label,
            unit="row",
            prior=prior,
            fixed_gradients=sweep.most is not None,
            exact=_exact(sweep.mechanism, distances.distance, sweep.farthest, prior, (low, high)),
        )
    if not isinstance(sweep, SampledSweep):
        return None
    steps = _steps(choice, sweep)
    return SliderData(
        low=steps[0].epsilon,
        high=steps[-1].epsilon,
        start=min((step.epsilon for step in steps), key=lambda at: abs(math.log(at / start))),
        start_label=start_label,
        unit="row",
        prior=choice.limit.prior,
        steps=steps,
    )


def epsilon_range(choice: "EpsilonChoice") -> tuple[float, float]:
    """Return the ends of the ε axis of a choice, around every ε that was tried or is marked."""
    from expost.epsilon.sweep import ends_of

    tried = choice.epsilons if choice.utility is None else choice.utility.epsilons
    # The end of the transition may lie far beyond any ε that is of use.
    high = math.nan if choice.is_public else choice.high
    marks = [end for end in ends_of(choice.low, high, choice.ceiling) if end > 1e-40]
    low, high = float(tried[0]), float(tried[-1])
    if marks:
        low, high = min(low, min(marks) / _MARGIN), max(high, max(marks) * _MARGIN)
    return (low, high) if high > low * _MARGIN else (low / _MARGIN, high * _MARGIN)


def slider_widget(slider: SliderData) -> Widget:
    """Return the widget of a slider; its blocks show the figures at the initial ε.

    The pairs of its facts are: the ε, the exposures at ``SHARES``, the posterior, and of an exact
    slider the share of wrong guesses and the membership advantage.
    """
    start, unit = slider.figures(slider.start), slider.unit
    pairs = [("ε", f"{number(slider.start)}, {slider.start_label}")]
    for part, exposure in start.by_share:
        subject = f"the most exposed {unit}" if part == 1 else f"{share(part)} of the {unit}s"
        limit = nats(figure(exposure, "up"))
        pairs.append(
            (f"expected exposure of {subject}", limit if part == 1 else f"at most {limit}")
        )
    event = "absence" if slider.absent else "presence"
    kind = "posterior" if slider.exact is None else "expected posterior"
    name = f"{kind} of {event}, most exposed {unit}, from a prior of {share(slider.prior)}"
    pairs.append((name, _share_up(start.posterior)))
    if start.advantage is not None:
        pairs.append(("an attacker who guesses is wrong", start.wrong_text))
        pairs.append(("membership advantage (0 %: random guessing)", _share_up(start.advantage)))
    blocks = (Facts(pairs=tuple(pairs)), Text(text=_accuracy_note(slider), small=True))
    return Widget(name="slider", data=_plain(asdict(slider)), blocks=blocks)


def _share_up(probability: float) -> str:
    """Return an upper limit of a share, below 100 %."""
    return percent(min(probability, math.nextafter(1.0, 0.0)), "up")


def _accuracy_note(slider: SliderData) -> str:
    if slider.exact is None:
        return (
            "This mechanism has no closed form. The slider has the values of ε that were tried, and"
            " the figures of the models sampled there. Posteriors are upper limits."
        )
    if slider.fixed_gradients:
        return (
            f"Estimates from the {slider.unit}s' gradients at the model without noise. Those of the"
            f" most exposed {slider.unit} are at the longest gradient that is possible."
        )
    return (
        f"Computed from the {slider.unit}s' distances and the exact law of their losses, with a"
        f" relative error of at most {number(slider.accuracy)}."
    )


def _plain(value: Any) -> Any:
    """Return strict JSON; infinity is the string that JavaScript's Number reads."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _is_of(profile: Profile, mechanism: ClosedForm) -> bool:
    """Return whether the rows have the law of this mechanism: not if releases are combined."""
    if profile.losses is None:
        return True
    law, own = profile.losses.law, profile.distance / mechanism.resolution
    known = type(law) is type(mechanism.loss_law(own))
    return law is not None and known and np.allclose(law.separation, own, rtol=1e-9, atol=0)


def _axis_around(epsilon: float) -> tuple[float, float]:
    low, high = min(_AXIS[0], epsilon / _REACH), max(_AXIS[1], epsilon * _REACH)
    if high / low > _LONGEST:
        return epsilon / _REACH, epsilon * _REACH
    return low, high


def _exact(
    mechanism: ClosedForm,
    distances: OrderStatistics,
    farthest: float,
    prior: float,
    axis: tuple[float, float],
) -> ExactSlider:
    """Return the slider of rows with these distances; ``farthest``: the largest upper end."""
    rows, least = distances.count, distances.least_positive
    ranks = curve_ranks(rows)
    scale, scale_error = scale_table(mechanism, *axis)

    def separation(epsilon: float, apart: float) -> float:
        return epsilon * math.exp(scale(math.log(epsilon))) * apart

    law = law_table(mechanism, prior, separation(axis[0], least), separation(axis[1], farthest))
    return ExactSlider(
        law=law,
        scale=scale,
        ranks=tuple(ranks.tolist()),
        distances=tuple(distances.at_most(rows + 1 - ranks).tolist()),
        quantiles=tuple(distances.quantile(np.array(SHARES)).tolist()),
        farthest=farthest,
        # The error of a figure relative to that of t: E∣ℓ∣ grows at most like μ², and no posterior
        # or advantage changes by more than 4 as t is multiplied by e, for priors from 10⁻¹² on.
        error=law.error + 4 * (scale_error + distances.error),
    )


def curve_ranks(rows: int) -> IntArray:
    """Return at most 400 ranks, evenly spread on a log scale."""
    if rows <= _POINTS:
        return np.arange(1, rows + 1)
    return np.unique(np.round(np.geomspace(1, rows, _POINTS)).astype(np.int64))


def _steps(choice: "EpsilonChoice", sweep: "SampledSweep") -> tuple[Step, ...]:
    """Return the steps at the ε that were tried, and at the recommended one."""
    chosen = [] if choice.recommended is None else [choice.recommended]
    steps = []
    for epsilon in np.union1d(sweep.epsilons, chosen).tolist():
        figures = sweep.figures(epsilon)
        exposures = np.quantile(figures.exposure, SHARES, method="inverted_cdf")
        posterior = sweep.posterior(np.array([epsilon]))
        steps.append(
            Step(
                epsilon=epsilon,
                exposures=tuple(exposures.tolist()),
                posterior=float(posterior[0]),
                error=float(np.max(figures.exposure_error)),
            )
        )
    return tuple(steps)
