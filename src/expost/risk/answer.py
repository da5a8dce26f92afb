"""What a promise allows an attacker, or which promise keeps a goal: one table, one sentence a line.

Conventions
-----------
route   one way to a figure, a column of the table: by the formulas of D5.3, for any mechanism of
        which (ε, δ) is all that is known, for Gaussian noise that is calibrated exactly, by the
        privacy-loss distribution of DP-SGD, or by the law of a model's own noise.
figure  one line of the table. Bounds are rounded up, what keeps a goal towards more noise.
"""

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expost.errors import InvalidInput
from expost.files.atomic import write_json
from expost.files.sealed import plain
from expost.forecast import Forecast
from expost.results import Displayed
from expost.risk.composition import CompositionComparison
from expost.risk.curves import RiskCurves, risk_curves
from expost.risk.guarantee import Guarantee
from expost.risk.wording import chance, chosen_percent
from expost.types import Audience

__all__ = ["REVIEWED", "Figure", "Identifiability", "Route"]

_ABSENT = "–"
# Of the curves of Fig. 4.2.
_DELTAS = (1e-6, 1e-4, 1e-2)
# By this a summary that was edited is told from one of a promise that anybody may know.
REVIEWED = (
    "The model that this is of is marked review: something was read from its rows that its promise"
    " does not cover, or it was drawn with a known seed, or it promises nothing; have it reviewed"
    " before this is passed on."
)
# What is set, not what an attacker reaches.
_LIMITS = ("epsilon", "epsilon_each", "mu", "sigma", "noise_multiplier")


@dataclass(frozen=True, kw_only=True)
class Route:
    """One way to the figures.

    ``key``      "paper", "any", "gaussian", "dpsgd" or "model".
    ``promise``  what it is computed from; None for the paper's formulas.
    ``note``     what it holds for.
    ``exceeded``  the probability with which its beliefs may be passed.
    """

    key: str
    name: str
    promise: Guarantee | None
    note: str
    exceeded: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure by every route that has it.

    ``by``        its value, by the key of the route; '1 in k' and what keeps a goal are lower
                  bounds, all others upper ones.
    ``shown``     the same as texts, rounded to the safe side.
    ``sentence``  what the first of them means; "" where the label says it.
    """

    name: str
    label: str
    by: Mapping[str, float]
    shown: Mapping[str, str]
    sentence: str = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Identifiability(Displayed):
    """ε in the words of those who ask. Holds nothing of any data but what a model's promise does.

    ``question``  the promise, or the goal, in a few words.
    ``is_goal``   whether a goal was asked for, so that ε, μ or the noise are the answer.
    ``routes``    the columns; the first one is what the sentences and properties tell.
    ``figures``   the lines.
    ``prior``     what the attacker holds beforehand for the probability that the row is there.
    ``delta``     of all releases together; 0 where none is named.
    ``exceeded``  the probability with which a belief of the first route may be passed.
    ``comparison``  what each way of composing the releases costs; None for one release.
    ``forecast``  what the noise leaves of a linear model with so many rows and features; None
                  where their numbers are not known.
    ``guarantee``  what a model guarantees, in sentences: its relation, and δ at other ε.
    ``notices``   what the reader must know.
    ``audience``  the mark of the model whose promise it is; without one it may be published.
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
    comparison: CompositionComparison | None = None
    forecast: Forecast | None = None
    guarantee: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    audience: Audience = Audience.PASS

    def __post_init__(self) -> None:
        if self.audience is Audience.PASS:
            return
        if REVIEWED not in self.notices:
            object.__setattr__(self, "notices", (*self.notices, REVIEWED))
        if self.comparison is not None:
            own = replace(self.comparison, audience=self.audience)
            object.__setattr__(self, "comparison", own)

    @property
    def promise(self) -> Guarantee:
        """What the first route is computed from."""
        promise = self.routes[0].promise
        assert promise is not None
        return promise

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
    def belief(self) -> float | None:
        """How sure an attacker can get, but with probability ``exceeded``."""
        return self._first("belief")

    @property
    def advantage(self) -> float | None:
        """The Bayes adversary's expected membership advantage, at most."""
        return self._first("advantage")

    @property
    def true_positive_rate(self) -> float | None:
        """The share of members that are found at ``false_positive_rate``, at most."""
        return self._first("true_positive_rate")

    @property
    def one_in(self) -> float | None:
        """k with belief = 1/k, at least."""
        return self._first("one_in")

    def curves(self) -> RiskCurves:
        """D5.3 Fig. 4.2 around the asked ε, for some δ and the asked one."""
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

    def figure(self, name: str) -> Figure:
        """The line of this name."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        names = ", ".join(repr(figure.name) for figure in self.figures)
        raise InvalidInput(f"name={name!r}: must be one of {names}.")

    @property
    def sentences(self) -> tuple[str, ...]:
        """One plain sentence a figure, of the first route that has it."""
        return tuple(figure.sentence for figure in self.figures if figure.sentence)

    def _first(self, name: str) -> float | None:
        """The value by the first route that has it; never the paper's, which need not hold."""
        for figure in self.figures:
            if figure.name == name:
                keys = [route.key for route in self.routes if route.key != "paper"]
                return next((figure.by[key] for key in keys if key in figure.by), None)
        return None

    def __repr__(self) -> str:
        return f"Identifiability({self.question})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, width: int | None = None) -> list[str]:
        """The table, the sentences and what holds for what; wrapped at ``width``."""
        verb = "What keeps" if self.is_goal else "What is allowed by"
        lines = [f"{verb} {self.question}", *self.guarantee, *self._setting()]
        lines += ["", *self._table(), ""]
        if self.is_goal:
            lines += [*(f"- {sentence}" for sentence in self._said(limits=True)), ""]
        lines.append(f"In words, {self.routes[0].name}:")
        rest = self._said(limits=False) if self.is_goal else self.sentences
        lines += [f"- {sentence}" for sentence in rest]
        if self.comparison is not None:
            lines += ["", *self.comparison.lines()]
        if self.forecast is not None:
            useless = self.forecast.warning
            lines = [*lines, "", *self.forecast.lines()]
            lines = lines if useless is None else [useless, "", *lines]
        lines.append("")
        lines += [f"{route.name}: {route.note}" for route in self.routes]
        lines += [f"! {notice}" for notice in self.notices]
        lines.append(f"mark: {self.audience.value}. {self.audience.meaning}")
        return lines if width is None else _wrapped(lines, width)

    def _said(self, *, limits: bool) -> list[str]:
        """The sentences of what is set, or of what an attacker reaches."""
        return [
            figure.sentence
            for figure in self.figures
            if figure.sentence and (figure.name in _LIMITS) is limits
        ]

    def _setting(self) -> list[str]:
        prior = "undecided" if self.prior == 0.5 else f"{chosen_percent(self.prior)} sure"
        passed = f"; {self.passed}" if self.passed else ""
        return [
            f"attacker: knows every other row and how the model is made; {prior} beforehand{passed}"
        ]

    @property
    def passed(self) -> str:
        """With which chance a belief may be passed, route by route where they differ; or ""."""
        own = [route for route in self.routes if route.promise is not None]
        if not any(route.exceeded > 0 for route in own):
            return ""
        said = "a belief may be passed with a chance of"
        if len({route.exceeded for route in own}) == 1:
            return f"{said} {chance(own[0].exceeded)}"
        return f"{said} " + ", ".join(f"{chance(one.exceeded)} ({one.name})" for one in own)

    def _table(self) -> list[str]:
        """Columns as wide as they must be."""
        columns = [
            [route.name, *(figure.shown.get(route.key, _ABSENT) for figure in self.figures)]
            for route in self.routes
        ]
        wide = [max(len(cell) for cell in column) + 2 for column in columns]
        labels = ["", *(figure.label for figure in self.figures)]
        first = max(len(label) for label in labels)
        body = [
            f"{label:<{first}}"
            + "".join(f"{column[line]:>{w}}" for column, w in zip(columns, wide, strict=True))
            for line, label in enumerate(labels)
        ]
        return [body[0], "-" * len(body[0]), *body[1:]]

    def fields(self) -> dict[str, Any]:
        """What the JSON holds."""
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
                    "promise": None if route.promise is None else route.promise.describe(),
                    "note": route.note,
                    "exceeded": None if route.promise is None else route.exceeded,
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
            "comparison": None if self.comparison is None else self.comparison.fields(),
            "forecast": None if self.forecast is None else self.forecast.fields(),
            "guarantee": list(self.guarantee),
            "notices": list(self.notices),
        }

    def to_json(self, path: str | Path | None = None) -> str | Path:
        """Everything as JSON text, or written to a file."""
        if path is None:
            return json.dumps(self.fields(), indent=1, ensure_ascii=False, allow_nan=False)
        return write_json(self.audience.path(path), self.audience, self.fields())


def _wrapped(lines: list[str], width: int) -> list[str]:
    """Sentences broken at ``width``; the table's lines stay whole."""
    wrapped = []
    for line in lines:
        # A table's line has runs of spaces, which a sentence never has.
        if len(line) <= width or "  " in line or set(line) == {"-"}:
            wrapped.append(line)
            continue
        indent = "  " if line.startswith(("- ", "! ")) else ""
        wrapped += textwrap.wrap(
            line, max(width, 40), subsequent_indent=indent, break_on_hyphens=False
        )
    return wrapped
