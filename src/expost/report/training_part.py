"""Everything that a report shows of a run of DP-SGD beyond its profile: how it came about.

The noise and the steps, what was promised after so many of them, and how the rows' losses grew. It
holds figures and one row's number, and no row's values. Text that came from outside is one line and
printable; each renderer escapes it for its own format. Nothing here needs torch: what a run gives
back holds a :class:`~expost.mechanisms.dpsgd.Transcript`, which is all that is read.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from expost import _checks
from expost.errors import InvalidInput
from expost.mechanisms.dpsgd import Adversary, Transcript
from expost.profiles.profile import Profile
from expost.profiles.transcript import (
    LAST_MODEL,
    NO_PROMISE,
    individual_epsilon,
    transcript_profile,
)
from expost.report.parts import Context, Headline, Part, one_line
from expost.report.wording import count, number, number_up, sure_text, upper
from expost.risk import Guarantee
from expost.risk.dpsgd import DPSGD
from expost.rounding import nats
from expost.types import Audience, FloatArray, Neighbouring

__all__ = [
    "EpochPoint",
    "OwnEpsilon",
    "SpentPoint",
    "TrainingPart",
    "collect_training",
    "run_profile",
    "transcript_of",
]

# Points of the two curves. With sampling each ε takes a second.
_EPOCHS, _CLOSED, _SAMPLED = 60, 33, 6
# Epochs that a table has.
_SHOWN = 8
_DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class EpochPoint:
    """The exposures after an epoch: of a middle row, of 99 % of the rows at most, the largest.

    ``own``  the loss so far of the row that is most exposed in the end.
    """

    epoch: int
    middle: float
    late: float
    largest: float
    own: float


@dataclass(frozen=True, kw_only=True)
class SpentPoint:
    """What so many steps promise, any row, any data."""

    steps: int
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class OwnEpsilon:
    """The rows' own ε, by the lengths of their gradients; ``filtered``: a filter promises it."""

    middle: float
    late: float
    largest: float
    filtered: bool


@dataclass(frozen=True, kw_only=True)
class TrainingPart(Part):
    """How a run of DP-SGD came about. For the curator only.

    ``noise_multiplier``, ``clip``  σ and C;  ``noise_scale`` the noise's standard deviation.
    ``sampling_rate``  each row's chance to be in a batch; 1: full batch.
    ``knows_batches``  whether the losses are those for an attacker who knows the batches.
    ``norm_budget``    of a filter on the rows' gradients, or None.
    ``delta``          where ε is told.
    ``epsilon``        what is promised where batches are not known; None: nothing, or not known.
    ``known_epsilon``  what is promised to who knows them, where that is another.
    ``unseen``         rows whose gradients were not computed at every step.
    ``row``, ``loss``  the row that is most exposed in the end, and its loss.
    """

    rows: int
    steps: int
    noise_multiplier: float
    clip: float
    noise_scale: float
    sampling_rate: float
    relation: Neighbouring
    knows_batches: bool
    norm_budget: float | None
    delta: float
    epsilon: float | None
    known_epsilon: float | None
    spent: tuple[SpentPoint, ...]
    epochs: tuple[EpochPoint, ...]
    own: OwnEpsilon | None
    unseen: int
    row: int
    loss: float
    audience: Literal[Audience.FAIL] = Audience.FAIL

    @property
    def title(self) -> str:
        """What stands above its page."""
        return f"A training of {count(self.steps)} steps on {count(self.rows)} rows"

    @property
    def batches(self) -> str:
        """How rows come into a step, in words."""
        if self.sampling_rate == 1:
            return "every row is in every step"
        share = number(100 * self.sampling_rate)
        seen = "which an attacker knows" if self.knows_batches else "which an attacker is not told"
        return f"each row is in a step with a chance of {share}\N{NO-BREAK SPACE}%, {seen}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The constants of the run, by name."""
        told = [
            ("steps", count(self.steps)),
            (
                "noise",
                f"{number(self.noise_multiplier)} times what one row can change (σ), a standard"
                f" deviation of {number(self.noise_scale)}",
            ),
            ("clipped at", f"{number(self.clip)}, the length of a row's gradient at most (C)"),
            ("batches", self.batches),
        ]
        if self.norm_budget is not None:
            budget = number(self.norm_budget)
            told.append(("filter", f"a row is left out before its gradients add up to {budget}"))
        if self.relation is Neighbouring.REPLACE:
            told.append(("compared with", "the data with the row replaced"))
        if self.unseen:
            told.append(("not seen", f"{count(self.unseen)} rows' gradients at some of the steps"))
        return tuple(told)

    @property
    def shown_epochs(self) -> tuple[EpochPoint, ...]:
        """A few of the epochs, for a table."""
        return tuple(self.epochs[place - 1] for place in _places(len(self.epochs), _SHOWN))


def transcript_of(result: Any) -> Transcript | None:
    """The transcript that a result is, or holds; None where there is none."""
    held = result if isinstance(result, Transcript) else getattr(result, "transcript", None)
    return held if isinstance(held, Transcript) else None


def run_profile(run: Any) -> Profile:
    """The profile of a run."""
    if isinstance(run, Transcript):
        return transcript_profile(run)
    profile = run.profile()
    assert isinstance(profile, Profile)
    return profile


def collect_training(
    run: Any, *, delta: float = _DELTA, context: Context | None = None
) -> TrainingPart:
    """Gather how a run came about: a training, a tracker of one, or a transcript."""
    found, delta = transcript_of(run), _checks.probability("delta", delta)
    if found is None or not found.steps:
        raise InvalidInput("run: must be a run of DP-SGD that has made a step.")
    context, how = context or Context(), found.mechanism
    is_promised = not getattr(run, "is_local", False)
    hidden = _hidden(run, found) if is_promised else None
    knows = found.adversary is Adversary.KNOWN_BATCHES
    told = is_promised and knows and how.sampling_rate < 1
    row = int(np.argmax(np.abs(found.loss)))
    part = TrainingPart(
        model=one_line(f"{how.describe()}, {found.steps} steps, n={how.rows}"),
        headline=Headline(),
        rows=how.rows,
        steps=found.steps,
        noise_multiplier=how.noise_multiplier,
        clip=how.clip,
        noise_scale=how.noise_scale,
        sampling_rate=how.sampling_rate,
        relation=how.relation,
        knows_batches=knows,
        norm_budget=how.norm_budget,
        delta=delta,
        epsilon=None if hidden is None else hidden.epsilon(delta),
        known_epsilon=found.guarantee().epsilon(delta) if told else None,
        spent=tuple(_spent(hidden, found, delta)),
        epochs=tuple(_epochs(found, row)),
        own=_own(found, delta) if is_promised else None,
        unseen=int(np.count_nonzero(found.unseen)),
        row=row,
        loss=float(found.loss[row]),
        **context.fields([LAST_MODEL, *(() if is_promised else (NO_PROMISE,))]),
    )
    return replace(part, headline=_headline(part), answer=tuple(_answer(part)))


def _hidden(run: Any, found: Transcript) -> Guarantee | None:
    """What the run promises to who does not know the batches, as far as it is known."""
    if found.mechanism.sampling_rate == 1 or found.adversary is Adversary.HIDDEN_BATCHES:
        return found.guarantee()
    # A transcript alone does not know whether its noise was the same at every step.
    told = None if isinstance(run, Transcript) else getattr(run, "guarantee", None)
    promise = told() if callable(told) else told
    return promise if isinstance(promise, Guarantee) else None


def _spent(hidden: Guarantee | None, found: Transcript, delta: float) -> Iterator[SpentPoint]:
    """ε after some of the steps, where all of them had the same noise and no filter cut in."""
    how = found.mechanism
    if not isinstance(hidden, DPSGD) or how.norm_budget is not None or found.steps < 2:
        return
    constant = math.isclose(hidden.noise_multiplier, how.noise_scale / how.clip, rel_tol=1e-6)
    if not constant or hidden.steps != found.steps:
        return
    points = _CLOSED if hidden.sampling_rate == 1 else _SAMPLED
    # ε grows about as the root of the steps: denser where it bends.
    roots = np.linspace(1, math.sqrt(found.steps), min(points, found.steps))
    for steps in np.unique((roots**2).round()).astype(int).tolist():
        promise = replace(hidden, steps=steps)
        yield SpentPoint(steps=steps, epsilon=promise.epsilon(delta))


def _places(last: int, most: int) -> list[int]:
    """At most so many whole numbers from 1 to ``last``, evenly spread, both ends among them."""
    return [int(place) for place in np.unique(np.linspace(1, last, min(most, last)).round())]


def _epochs(found: Transcript, row: int) -> Iterator[EpochPoint]:
    losses: FloatArray = found.epochs.astype(np.float64)
    if not len(losses):
        return
    for epoch in _places(len(losses), _EPOCHS):
        exposure = np.abs(losses[epoch - 1])
        middle, late, largest = np.quantile(exposure, (0.5, 0.99, 1.0), method="inverted_cdf")
        yield EpochPoint(
            epoch=epoch,
            middle=float(middle),
            late=float(late),
            largest=float(largest),
            own=float(losses[epoch - 1, row]),
        )


def _own(found: Transcript, delta: float) -> OwnEpsilon | None:
    how = found.mechanism
    if how.sampling_rate != 1 or how.relation is not Neighbouring.REMOVE:
        return None
    own = individual_epsilon(found, delta)
    middle, late, largest = np.quantile(own.epsilon, (0.5, 0.99, 1.0), method="inverted_cdf")
    return OwnEpsilon(
        middle=float(middle), late=float(late), largest=float(largest), filtered=own.filtered
    )


# -- in words --------------------------------------------------------------------------------------


def _headline(part: TrainingPart) -> Headline:
    """What the run promises; how sure its transcript makes of the most exposed row; what to do."""
    return Headline(
        epsilon=_promise(part),
        exposed=(
            f"Somebody who sees every step of this training, knows all other rows and was undecided"
            f" gets {sure_text(abs(part.loss))} sure whether the most exposed row was in"
            f" the data ({nats(number_up(abs(part.loss)))})."
        ),
        advice=(
            "If that is surer than you would accept, train with more noise, fewer steps or smaller"
            " gradients; whoever gets only the last model learns less on average."
        ),
    )


def _promise(part: TrainingPart) -> str:
    if part.epsilon is None and part.known_epsilon is None:
        return "This training promises no ε: what it gives away is known only for this run."
    at = f"at δ = {upper(part.delta)}"
    told = [] if part.epsilon is None else [f"ε = {upper(part.epsilon, 4)} {at}"]
    if part.epsilon is not None and part.known_epsilon is not None:
        told[0] += " to whoever does not know the batches"
    if part.known_epsilon is not None:
        told.append(f"ε = {upper(part.known_epsilon, 4)} {at} to whoever knows them")
    steps = "The step" if part.steps == 1 else f"The {count(part.steps)} steps together"
    if part.epsilon is None:
        told[0] = told[0].replace("knows them", "knows the batches")
    verb = "promises" if part.steps == 1 else "promise"
    return f"{steps} {verb} {', and '.join(told)}."


def _answer(part: TrainingPart) -> Iterator[str]:
    """How the most exposed row's loss grew, and what the rows' own ε are."""
    epochs = part.epochs
    if len(epochs) >= 3:
        quarter, half = epochs[(len(epochs) - 1) // 4], epochs[(len(epochs) - 1) // 2]
        told = ", ".join(
            f"{nats(number_up(abs(one.own)))} after epoch {count(one.epoch)}"
            for one in dict.fromkeys((quarter, half, epochs[-1]))
        )
        yield f"The row that is most exposed in the end had lost {told}."
    if part.own is not None and part.epsilon is not None:
        kind = (
            "a filter keeps every row to that"
            if part.own.filtered
            else "an account after the fact, not a promise"
        )
        yield (
            f"By the lengths of its own gradients a middle row has spent ε ="
            f" {upper(part.own.middle)}, 99 of 100 rows at most {upper(part.own.late)}, and no"
            f" row more than {upper(part.own.largest)} ({kind})."
        )
