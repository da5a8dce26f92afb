"""What a guarantee allows an attacker, or which guarantee keeps a goal: the figures of the answer.

Conventions
-----------
route   one derivation of the figures, a column of the table: for any mechanism of which (ε, δ) is
        all that is known, for Gaussian noise that is calibrated exactly, by the privacy-loss
        distribution of DP-SGD, or by the law of a model's own noise.
figure  one line of the table. Bounds are rounded up, parameters towards more noise.

:mod:`expost.risk.questions` chooses the routes.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.sealed import plain
from expost.forecast import Forecast
from expost.results import Displayed
from expost.risk.attacks import AttackBound
from expost.risk.composition import CompositionComparison
from expost.risk.curves import RiskCurves, risk_curves
from expost.risk.guarantee import Guarantee
from expost.types import Audience, FloatArray

__all__ = [
    "DIGITS",
    "REVIEWED",
    "Figure",
    "Identifiability",
    "Parameters",
    "RateCurves",
    "Route",
    "Setting",
]

# Of the curves of Fig. 4.2.
_DELTAS = (1e-6, 1e-4, 1e-2)
# An edited summary is recognised by this notice: a public guarantee never has it.
REVIEWED = (
    "The model behind these figures needs review: something was read from its rows that its"
    " guarantee does not cover, or its noise was seeded, or it has no guarantee. Have it"
    " reviewed before you share this."
)
# Digits of ε, μ, σ and noise multipliers, which are typed again.
DIGITS = 4
# False-positive rates of a curve: at each, a privacy-loss distribution takes a tenth of a second.
_RATES = np.geomspace(1e-4, 1.0, 17)

# The values of ε, μ, σ and noise multipliers, by the name of the figure and the key of the route.
Parameters = dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the figures are for.

    Parameters
    ----------
    delta : float
        δ of all releases together.
    exceeded : float
        The probability with which a posterior may be exceeded where (ε, δ) with δ > 0 is all that
        is known, which bounds none at δ itself (erratum 10); 0: never.
    known : float
        The same where the noise is known: δ, unless another one was given.
    baselines : Mapping[str, float]
        The baseline of each risk beyond membership that is asked for, by its name.
    """

    prior: float
    delta: float
    exceeded: float
    known: float
    false_positive_rate: float
    releases: int
    baselines: Mapping[str, float] = field(default_factory=dict)

    @property
    def observed(self) -> str:
        """What the attacker sees."""
        return "the model" if self.releases == 1 else f"all {self.releases:,} releases"

    @property
    def of_releases(self) -> str:
        """'3 releases of ', or nothing for one."""
        return "" if self.releases == 1 else f"{self.releases:,} releases of "


@dataclass(frozen=True, kw_only=True)
class Route:
    """One derivation of the figures.

    Parameters
    ----------
    key : str
        "any", "gaussian", "dpsgd" or "model".
    guarantee : Guarantee
        What it is computed from.
    note : str
        What it holds for.
    exceeded : float, default=0.0
        The probability with which its posteriors may be exceeded.
    """

    key: str
    name: str
    guarantee: Guarantee
    note: str
    exceeded: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure by every route that has it.

    Parameters
    ----------
    by : Mapping[str, float]
        Its value, by the key of the route; '1 in k' and what keeps a goal are lower bounds, all
        others upper ones.
    shown : Mapping[str, str]
        The same as strings, rounded to the safe side.
    sentence : str, default=""
        What the first of them means; "" where the label is enough.
    """

    name: str
    label: str
    by: Mapping[str, float]
    shown: Mapping[str, str]
    sentence: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class RateCurves:
    """True-positive rates (m,) by the key of the route over ``false_positive_rate`` (m,)."""

    false_positive_rate: FloatArray
    by: Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Identifiability(Displayed):
    """What a guarantee means. It holds nothing of any data, except for the guarantee of a model.

    Attributes
    ----------
    question : str
        The guarantee, or the goal, in a few words.
    is_goal : bool
        Whether ε, μ or the noise are the answer to a goal.
    routes : tuple[Route, ...]
        The columns; sentences and properties are about the first one.
    figures : tuple[Figure, ...]
        The lines.
    prior : float
        The attacker's probability of presence before the release.
    delta : float
        δ of all releases together; 0 if none is given.
    exceeded : float
        The probability with which a posterior of the first route may be exceeded.
    false_positive_rate : float
        The rate at which the true-positive rate is reported.
    releases : int
        The number of releases.
    attacks : tuple[AttackBound, ...]
        The bounds beyond membership, for the baselines that were given.
    comparison : CompositionComparison | None
        The cost of each composition theorem; None for one release.
    forecast : Forecast | None
        The quality of a linear model with so many rows and features; None if their numbers are not
        known.
    statements : tuple[str, ...]
        The guarantee of a model in sentences: its relation, and δ at other ε.
    notices : tuple[str, ...]
        What the reader must know.
    audience : Audience
        That of the model; a guarantee without one is public.
    model : str | None
        The checksum of the model.json whose guarantee it is; None if it is of no model.
    """

    question: str
    is_goal: bool
    routes: tuple[Route, ...]
    figures: tuple[Figure, ...]
    prior: float
    delta: float
    exceeded: float
    false_positive_rate: float
    releases: int
    attacks: tuple[AttackBound, ...] = ()
    comparison: CompositionComparison | None = None
    forecast: Forecast | None = None
    statements: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    audience: Audience = Audience.PUBLIC
    model: str | None = None

    def __post_init__(self) -> None:
        if self.audience is Audience.PUBLIC:
            return
        if REVIEWED not in self.notices:
            object.__setattr__(self, "notices", (*self.notices, REVIEWED))
        if self.comparison is not None:
            own = replace(self.comparison, audience=self.audience)
            object.__setattr__(self, "comparison", own)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the first route."""
        return self.routes[0].guarantee

    @property
    def epsilon(self) -> float | None:
        """ε of all releases together at ``delta``; None where there is none."""
        return self._first("epsilon")

    @property
    def epsilon_each(self) -> float | None:
        """ε of each release that keeps a goal; None where there is none."""
        return self._first("epsilon" if self.releases == 1 else "epsilon_each")

    @property
    def mu(self) -> float | None:
        """μ of each release with Gaussian noise, sensitivity/σ."""
        return self._first("mu")

    @property
    def noise_multiplier(self) -> float | None:
        """That of DP-SGD."""
        return self._first("noise_multiplier")

    @property
    def posterior(self) -> float | None:
        """The largest posterior, exceeded with probability ``exceeded`` at most."""
        return self._first("posterior")

    @property
    def advantage(self) -> float | None:
        """The Bayes adversary's expected membership advantage, at most."""
        return self._first("advantage")

    @property
    def true_positive_rate(self) -> float | None:
        """The share of members detected at ``false_positive_rate``, at most."""
        return self._first("true_positive_rate")

    @property
    def one_in(self) -> float | None:
        """k with posterior = 1/k, at least."""
        return self._first("one_in")

    @property
    def gaussian_dp(self) -> float | None:
        """μ of the Gaussian guarantee that is implied, up to ``delta``; None if there is none."""
        return self._first("gaussian_dp")

    @property
    def gaussian_dp_error(self) -> float | None:
        """The error of ``gaussian_dp``: what it overstates of a guess's chance, at most."""
        return self._first("gaussian_dp_error")

    def curves(self) -> RiskCurves:
        """Return the curves of D5.3 Fig. 4.2 around ``epsilon``, for some δ and ``delta``.

        Returns
        -------
        RiskCurves
            The curves over ε, one for each δ.

        Raises
        ------
        InvalidInput
            If there is no finite ε; name a δ.
        """
        epsilon = self.epsilon
        if epsilon is None or not 0 < epsilon < math.inf:
            raise InvalidInput(
                f"epsilon={epsilon!r}: the curves run over epsilon; name a delta, at which it is"
                " finite."
            )
        deltas = list(_DELTAS)
        if self.delta > 0:
            # In place of the one that is nearest to it.
            away = [abs(math.log(delta / self.delta)) for delta in deltas]
            deltas[away.index(min(away))] = self.delta
        low, high = min(0.01, epsilon / 10), 10.0 if epsilon <= 2 else 20 * epsilon
        curves = risk_curves(deltas, low=low, high=high, prior=self.prior)
        return replace(curves, audience=self.audience)

    @cached_property
    def rates(self) -> RateCurves:
        """The largest true-positive rate over false-positive rates, by the key of the route."""
        return RateCurves(
            false_positive_rate=_RATES,
            by={
                route.key: np.array(
                    [route.guarantee.true_positive_rate(rate) for rate in _RATES.tolist()]
                )
                for route in self.routes
            },
        )

    def figure(self, name: str) -> Figure:
        """Return the line of this name.

        Parameters
        ----------
        name : str
            The name of the line, such as "posterior".

        Returns
        -------
        Figure
            The line, with its value by each route.

        Raises
        ------
        InvalidInput
            If there is no line of this name.
        """
        for figure in self.figures:
            if figure.name == name:
                return figure
        names = ", ".join(repr(figure.name) for figure in self.figures)
        raise InvalidInput(f"name={name!r}: must be one of {names}.")

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence for each figure, about the first route that has it."""
        return tuple(figure.sentence for figure in self.figures if figure.sentence)

    def _first(self, name: str) -> float | None:
        """Return the value by the first route that has it."""
        for figure in self.figures:
            if figure.name == name:
                keys = [route.key for route in self.routes]
                return next((figure.by[key] for key in keys if key in figure.by), None)
        return None

    def __repr__(self) -> str:
        return f"Identifiability({self.question})"

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        return {
            "format": "expost-identifiability/1",
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "question": self.question,
            "is_goal": self.is_goal,
            "prior": self.prior,
            "delta": self.delta,
            "exceeded": self.exceeded,
            "false_positive_rate": self.false_positive_rate,
            "releases": self.releases,
            "routes": {
                route.key: {
                    "name": route.name,
                    "guarantee": route.guarantee.describe(),
                    "note": route.note,
                    "exceeded": route.exceeded,
                }
                for route in self.routes
            },
            "figures": {
                figure.name: {
                    "label": figure.label,
                    "sentence": figure.sentence,
                    "values": plain(figure.by),
                }
                for figure in self.figures
            },
            "attacks": {attack.risk.name: attack.fields() for attack in self.attacks},
            "comparison": None if self.comparison is None else self.comparison.fields(),
            "forecast": None if self.forecast is None else self.forecast.fields(),
            "statements": list(self.statements),
            "notices": list(self.notices),
        }

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Return everything as a JSON string, or write it to a file and return its path.

        Parameters
        ----------
        path : str | Path, optional
            The file to write; None: nothing is written.

        Returns
        -------
        str | Path
            The JSON string, or the path of the file.
        """
        if path is None:
            return json.dumps(self.fields(), indent=1, ensure_ascii=False, allow_nan=False)
        return write_json(self.audience.path(path), self.audience, self.fields())
