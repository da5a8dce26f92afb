"""What an attacker with a prior learns about each row of one model, as a document.

Every figure is the exposed end of its certified interval, rounded towards more exposed.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import logit

from expost.groups.columns import printable
from expost.numbers import (
    certainty,
    count,
    number,
    percent,
    posterior_at,
    share,
    symbols,
)
from expost.profiles.digest import ExtremeRow
from expost.profiles.posterior import RowIdentifiability
from expost.report.document import (
    Alert,
    Block,
    Document,
    Heading,
    Section,
    Text,
    Tile,
    Verdict,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel
from expost.report.sections.bounds import at_most, exception
from expost.types import Audience

__all__ = ["posterior_document", "posterior_figure", "posterior_sections"]

_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)
_POINTS = 400


def posterior_document(result: RowIdentifiability) -> Document:
    """Describe the posterior of every row."""
    unit, prior = result.unit, float(logit(result.prior))
    highest, lowest = result.digest.highest.largest, result.lowest_loss
    either = max(prior + highest, -(prior + lowest))
    return Document(
        kind="posterior",
        title=f"Identifiability of {count(len(result))} {unit}s",
        subtitle=(symbols(one_line(result.description)), f"prior {share(result.prior)}"),
        audience=Audience.CURATOR_ONLY,
        verdict=Verdict(
            text=f"An {result.attacker} gets {at_most(certainty(prior + highest))} certain that any"
            f" {unit} was in the data, from a prior of {share(result.prior)}.",
            more="If that is more than you accept, release at a smaller ε: `expost epsilon"
            " --max-posterior` recommends one.",
            tone="plain",
            priority=45,
        ),
        tiles=(
            Tile(
                label=f"Most exposed {unit}",
                value=certainty(either) if result.prior == 0.5 else certainty(prior + highest),
                lines=(
                    f"posterior of {unit} {printable(result.digest.most_certain.key)}:"
                    f" {at_most(certainty(prior + highest))}{_of(result)}",
                    f"prior {share(result.prior)}",
                ),
                people=min(100, math.ceil(100 * posterior_at(prior + highest) - 1e-9)),
            ),
            _guarantee_tile(result, prior),
        ),
        alerts=tuple(Alert.of("review", notice) for notice in result.notices),
        sections=tuple(posterior_sections(result, brief=True)),
        glossary=(
            ("posterior", f"The attacker's probability that the {unit} was in the data."),
            (
                "advantage",
                "Membership advantage: TPR minus FPR of the best attack over all models that might"
                " have been released. 0 is random guessing.",
            ),
        ),
        facts={"unit": unit, "prior": result.prior},
    )


def _of(result: RowIdentifiability) -> str:
    """Return who a figure is about, where there are several kinds of attackers."""
    return "" if result.attacker == "attacker" else f", of an {result.attacker}"


def _guarantee_tile(result: RowIdentifiability, prior: float) -> Tile:
    worst = result.worst_case
    if result.losses.guarantee is None:
        return Tile(label="Guarantee", value="none", lines=("no ε is guaranteed",), tone="bad")
    unless = exception(worst.failure)
    return Tile(
        label="Guarantee",
        value=certainty(prior + float(result.losses.worst_case)),
        lines=(
            f"largest posterior that it allows for any {result.unit}{_of(result)}",
            *((unless,) if unless else ()),
        ),
    )


def posterior_sections(result: RowIdentifiability, *, brief: bool) -> Iterator[Section]:
    """Yield the sections about posteriors; without ``brief`` those that a profile's page adds.

    An advantage that must be sampled is left out of a profile's page, because that takes longer
    than the profile itself.
    """
    blocks: list[Block] = []
    drawn = posterior_figure(result) if brief and result.is_held else None
    if drawn is not None:
        blocks.append(drawn)
    blocks += [_levels(result), Heading(text="By share of the rows"), _quantiles(result)]
    yield Section(
        id="posterior",
        title=f"Posterior of each {result.unit}",
        blocks=tuple(blocks),
        nav="Exposure" if brief else "Details",
        brief=brief,
    )
    yield Section(
        id="allowed",
        title="This model and its guarantee",
        blocks=tuple(_beside_guarantee(result, sampled=brief)),
        nav="Guarantee" if brief else "Details",
        brief=brief,
    )


def posterior_figure(result: RowIdentifiability) -> Figure:
    """Return the upper ends of the posteriors of rows in memory by rank."""
    order = np.sort(result.posterior_high)[::-1]
    ranks = np.arange(1, len(order) + 1)
    if len(order) > _POINTS:
        ranks = np.unique(np.round(np.geomspace(1, len(order), _POINTS)).astype(np.int64))
    line = Line(name="posterior", x=ranks.tolist(), y=order[ranks - 1].tolist())
    panel = Panel(
        title="Posterior by rank",
        x=Axis(
            label=f"rank of the {result.unit} (log scale)",
            low=1.0,
            high=float(max(len(order), 2)),
            log=True,
            format="count",
        ),
        y=Axis(label="posterior", low=0.0, high=1.0, format="percent"),
        lines=(
            line,
            Line(
                name=f"prior, {share(result.prior)}",
                x=[1.0, float(max(len(order), 2))],
                y=[result.prior, result.prior],
                role="limit",
            ),
        ),
    )
    return Figure(
        key="posterior",
        description=f"Posteriors of {count(len(order))} {result.unit}s by rank, at most"
        f" {percent(float(order[0]), 'up')}.",
        panels=(panel,),
    )


def _levels(result: RowIdentifiability) -> Block:
    pairs = list(zip(result.levels, result.doubt_levels, strict=True))
    rows, even = max(len(result), 1), result.prior == 0.5
    return table(
        pairs,
        ("posterior above", lambda pair: pair[0], share),
        (f"{result.unit}s, present", lambda pair: result.rows_above(pair[0]), count),
        ("share", lambda pair: result.rows_above(pair[0]) / rows, percent),
        (f"{result.unit}s, absent", lambda pair: result.rows_doubted(pair[1]), count)
        if even
        else None,
        ("share", lambda pair: result.rows_doubted(pair[1]) / rows, percent) if even else None,
        caption=f"{result.unit.capitalize()}s that the attacker may be so certain about",
    )


def _quantiles(result: RowIdentifiability) -> Block:
    highest, prior = result.digest.highest, float(logit(result.prior))
    # With few rows the outer quantiles are the largest one again.
    shares = [each for each in _SHARES if each == 1 or highest.count * (1 - each) >= 1]
    values = dict(zip(shares, highest.quantile(np.array(shares)).tolist(), strict=True))
    return table(
        shares,
        (f"share of the {result.unit}s", lambda each: each, share),
        ("posterior, at most", lambda each: prior + values[each], certainty),
    )


def _beside_guarantee(result: RowIdentifiability, *, sampled: bool) -> Iterator[Block]:
    unit, prior, worst = result.unit, float(logit(result.prior)), result.worst_case
    allowed = certainty(prior + float(result.losses.worst_case))
    most, least = result.digest.most_certain, result.digest.least
    lines: list[tuple[str, str | None, str | None]] = [
        (
            f"posterior of {unit} {printable(most.key)} (present)",
            _posterior_text(most, prior),
            allowed,
        )
    ]
    if result.prior == 0.5:
        absent = f"posterior probability of absence of {unit} {printable(least.key)}"
        low = -math.inf if math.isnan(least.loss_low) else least.loss_low
        lines.append((absent, certainty(-low), allowed))
    advantage = number(worst.advantage, "up")
    # Without a law it is sampled, which needs every row.
    is_sampled = result.losses.law is None and (
        result.losses.draw is not None or not result.is_held
    )
    if sampled or not is_sampled:
        strongest, largest = result.most_certain_advantage, result.largest_advantage
        error = f" ± {number(strongest.error, 'up', 2)}" if strongest.error > 0 else ""
        lines += [
            (
                f"advantage against {unit} {printable(strongest.key)}",
                number(strongest.high, "up") + error,
                advantage,
            ),
            (
                f"largest advantage ({unit} {printable(largest.key)})",
                number(largest.high, "up"),
                advantage,
            ),
        ]
    else:
        lines.append(("advantage (not computed for this page)", None, advantage))
    false = share(worst.false_positive_rate)
    lines.append((f"TPR at {false} FPR", None, percent(worst.true_positive_rate, "up")))
    if result.baseline is not None:
        lines += _beyond_membership(result)
    yield table(
        lines,
        ("", lambda line: line[0], str),
        ("this model, at most", lambda line: line[1], _as_is),
        (f"guarantee allows for any {unit}", lambda line: line[2], _as_is),
    )
    if result.losses.guarantee is None:
        yield Text(text="Nothing is guaranteed, which allows everything.", small=True)
        return
    unless = f" The posterior holds {exception(worst.failure)}." if worst.failure > 0 else ""
    stated = symbols(one_line(worst.guarantee))
    yield Text(text=f"Guarantee: {stated}.{unless}", small=True)


def _beyond_membership(result: RowIdentifiability) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the bound over releases, and the posterior given this release."""
    assert result.baseline is not None
    guarantee, start = result.losses.guarantee, share(result.baseline)
    allowed = 1.0 if guarantee is None else guarantee.true_positive_rate(result.baseline)
    yield (
        f"success of an attack from {start}, over all releases",
        percent(result.largest_attack_bound, "up"),
        percent(allowed, "up"),
    )
    prior = float(logit(result.baseline))
    yield (
        f"posterior from {start}, given this model",
        certainty(prior + result.digest.highest.largest),
        certainty(prior + float(result.losses.worst_case)),
    )


def _posterior_text(row: ExtremeRow, prior: float) -> str:
    # What is not known counts as exposed.
    return certainty(prior + (math.inf if math.isnan(row.loss_high) else row.loss_high))


def _as_is(text: str) -> str:
    """Return a cell that is formatted already; its column is one of numbers."""
    return text
