"""A privacy profile as a document: how certain an attacker gets about each row of one model.

The overview (verdict, tiles, alerts) is in :mod:`expost.report.sections.profile_overview`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from expost.groups.exposure import Explanation, Grouping, printable
from expost.numbers import (
    certainty,
    count,
    figure,
    number,
    percent,
    posterior_at,
    share,
    symbols,
)
from expost.profiles.digest import POSTERIOR
from expost.profiles.fit import FitScores
from expost.profiles.profile import Profile
from expost.release import Release
from expost.report.document import (
    Block,
    Code,
    Document,
    Facts,
    Section,
    Table,
    Text,
    one_line,
    table,
)
from expost.report.figure import Axis, Figure, Line, Panel, Rule
from expost.report.rows import MOST_ROWS, search_widget
from expost.report.sections.attackers import attackers_section
from expost.report.sections.bounds import at_most, cell_up
from expost.report.sections.groups import groups_section, groups_table, named_groups
from expost.report.sections.left_out import NOT_LEAKAGE, left_out_section, top_sentence
from expost.report.sections.posterior import posterior_sections
from expost.report.sections.profile_overview import Subject, rows_text
from expost.report.slider import curve_ranks, slider_of_profile, slider_widget
from expost.types import Audience, FloatArray, Neighbouring

__all__ = ["profile_document", "profile_figure"]

_TOP_ROWS = 20
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


def profile_document(
    profile: Profile,
    *,
    release: Release | None = None,
    groups: Sequence[Grouping] = (),
    explanation: Explanation | None = None,
    next_steps: Sequence[Code] = (),
) -> Document:
    """Describe a profile.

    Parameters
    ----------
    profile : Profile
        The losses of all rows.
    release : Release, optional
        The model that was profiled; by default the one that the profile knows.
    groups, explanation : Sequence[Grouping], Explanation | None
        Results of ``profile.by`` and ``profile.explain``.
    next_steps : sequence of Code
        Commands to show as the next step.
    """
    subject = Subject.of(profile, release)
    attackers = profile.attackers
    sections = [
        None if attackers is None else attackers_section(attackers, subject.row_figures),
        _exposure(subject),
        left_out_section(profile),
        _slider(subject),
        _top(subject),
        groups_section(groups, explanation, profile.terms.measure),
        _search(subject),
        *_posterior_sections(profile),
        _utility(profile.fit, profile.forecast),
        _guarantee(subject),
        _in_nats(subject, groups, explanation),
        _certificates(subject),
    ]
    return Document(
        kind="profile",
        title=f"Privacy profile of {subject.heading}",
        subtitle=tuple(subject.subtitle()),
        audience=Audience.CURATOR_ONLY,
        verdict=subject.verdict(),
        tiles=tuple(subject.tiles()),
        alerts=tuple(subject.alerts()),
        steps=tuple(next_steps),
        sections=tuple(section for section in sections if section is not None),
        glossary=tuple(subject.glossary()),
        facts=subject.facts(),
    )


def _posterior_sections(profile: Profile) -> Iterator[Section]:
    if not profile.is_noiseless:
        yield from posterior_sections(profile.identifiability(), brief=False)


# -- sections --------------------------------------------------------------------------------------


def _exposure(subject: Subject) -> Section:
    profile, unit = subject.profile, subject.unit
    drawn = profile_figure(profile, unit=unit)
    blocks: list[Block] = []
    if profile.is_noiseless:
        blocks.append(
            Text(
                text=f"Without noise {unit}s are compared by how far the model moves without them:"
                f" half of them move it by at most {number(_reach(profile, 0.5), 'up')}."
            )
        )
        blocks.append(Text(text=NOT_LEAKAGE))
    else:
        known = "the rows of everyone else" if unit == "person" else "every other row"
        if profile.attackers is not None:
            known += f" (an {profile.attackers.noun})"
        blocks.append(
            Text(
                text=f"The attacker knows {known} and starts undecided (50 %). {unit.capitalize()}s"
                " are ordered by exposure."
            )
        )
    if drawn is not None:
        blocks.append(drawn)
    else:
        blocks.append(Text(text=f"No {unit} is exposed: every {profile.terms.measure} is 0."))
    blocks.append(_quantiles(subject, in_nats=profile.is_noiseless))
    if profile.sizes is not None:
        median = int(np.quantile(profile.sizes, 0.5, method="inverted_cdf"))
        blocks.append(
            Text(
                text="All rows of a person are removed at once. Half of the persons have at most"
                f" {rows_text(median)}; the largest number is {count(int(np.max(profile.sizes)))}.",
                small=True,
            )
        )
    title = f"How certain an attacker gets, {unit} by {unit}"
    if profile.is_noiseless:
        title = f"How far each {unit} moves the model"
    return Section(id="exposure", title=title, blocks=tuple(blocks), nav="Exposure")


def profile_figure(profile: Profile, *, unit: str = "row") -> Figure | None:
    """Return the profile by rank: certainty in percent, or distances where there is no noise."""
    ranks = curve_ranks(len(profile))
    scores, expected = _curve(profile, ranks)
    if not np.any(scores > 0):
        return None
    x = Axis(
        label=f"rank of the {unit}, most exposed first (log scale)",
        low=1.0,
        high=float(max(ranks[-1], 2)),
        log=True,
        format="count",
        quantity="rank",
    )
    if profile.is_noiseless:
        positive = scores[scores > 0]
        y = Axis(
            label="distance",
            low=float(max(positive.min(), positive.max() * 1e-6) / 1.3),
            high=float(positive.max() * 1.3),
            log=True,
        )
        lines = [Line(name="this model", x=ranks.tolist(), y=scores.tolist())]
        reach = profile.digest.reach
        if reach is not None:
            above = np.minimum(reach.at_most(len(profile) + 1 - ranks), y.high)
            name = "certified, at most"
            lines.append(Line(name=name, x=ranks.tolist(), y=above.tolist(), role="second"))
        panel = Panel(title=f"Distance of each {unit}", x=x, y=y, lines=tuple(lines))
        description = f"Distances of {count(len(profile))} {unit}s by rank."
        return Figure(key="profile", description=description, panels=(panel,))
    qualifier = "" if profile.attackers is None else profile.attackers.qualifier
    lines = [Line(name="this model", x=ranks.tolist(), y=_certainties(scores))]
    if expected is not None:
        expected_line = Line(
            name="expected over releases", x=ranks.tolist(), y=_certainties(expected), role="second"
        )
        lines.append(expected_line)
    top = max(max(line.y) for line in lines)
    rules = [Rule(name=f"limit, {share(POSTERIOR)}", at=POSTERIOR)]
    worst = profile.worst_case
    if worst < math.inf and posterior_at(worst) < 0.99:
        name = f"guarantee, {certainty(worst)}"
        rules.append(Rule(name=name, at=posterior_at(worst), role="third"))
        top = max(top, posterior_at(worst))
    y = Axis(
        label="attacker's certainty",
        low=0.5,
        high=min(1.0, max(0.8, math.ceil(top * 20 + 0.2) / 20)),
        format="percent",
    )
    return Figure(
        key="profile",
        description=f"The attacker's certainty about {count(len(profile))} {unit}s by rank:"
        f" {at_most(certainty(profile.digest.outer))} for the most exposed {unit},"
        f" {at_most(certainty(profile.quantile(0.5)))} for half of them.",
        panels=(
            Panel(
                title=f"Attacker's certainty by rank{qualifier}",
                x=x,
                y=y,
                lines=tuple(lines),
                rules=tuple(rules),
            ),
        ),
        caption=""
        if expected is None
        else f"The expected curve has its own ranking: which {unit}s are exposed most differs from"
        " release to release.",
    )


def _curve(profile: Profile, ranks: Any) -> tuple[FloatArray, FloatArray | None]:
    """Return the scores, and the expected scores, at these ranks."""
    ascending = len(profile) + 1 - ranks
    scores, expected = profile.scores.at_most(ascending), profile.expected_scores
    if profile.scores.error > 0:
        # The scores of the most exposed rows are known exactly.
        name = "distance" if profile.is_noiseless else "loss"
        known = np.abs(profile.most(MOST_ROWS, (name,)).column(name).to_numpy())
        exact = ranks <= len(known)
        scores[exact] = known[ranks[exact] - 1]
    return scores, None if expected is None else expected.at_most(ascending)


def _certainties(scores: FloatArray) -> list[float]:
    return [posterior_at(float(score)) for score in scores]


def _quantiles(subject: Subject, *, in_nats: bool) -> Table:
    """Return the scores of shares of the rows: in nats, or as certainties of an attacker."""
    profile = subject.profile
    # With few rows the outer quantiles are the largest one again.
    shares = [each for each in _SHARES if each == 1 or len(profile) * (1 - each) >= 1]
    compared = profile.scores if profile.digest.reach is None else profile.digest.reach
    scores = dict(zip(shares, compared.quantile(np.array(shares)).tolist(), strict=True))
    order = profile.expected_scores
    expected: dict[float, float] = {}
    if order is not None:
        expected = dict(zip(shares, order.quantile(np.array(shares)).tolist(), strict=True))
    titles = f"attacker's certainty, at most{subject.qualifier}", "expected certainty, at most"
    if in_nats:
        titles = "exposure (nats), at most", "expected exposure (nats), at most"
    if profile.is_noiseless:
        titles = "distance, at most", ""
    # The certainty is concave in the exposure: that at its mean bounds the mean certainty.
    text = cell_up if in_nats else certainty
    return table(
        shares,
        (f"share of the {subject.unit}s", lambda each: each, share),
        (titles[0], scores.get, text),
        (titles[1], expected.get, text) if expected else None,
    )


def _top(subject: Subject) -> Section:
    """Return the most exposed rows, as a reader compares them."""
    return Section(
        id="most-exposed",
        title=f"The most exposed {subject.unit}s",
        blocks=(_top_table(subject, _open_columns(subject)),),
        nav="Exposure",
    )


def _top_table(subject: Subject, columns: Sequence[Any]) -> Table:
    profile, unit = subject.profile, subject.unit
    key = "id" if profile.keyed else profile.unit
    caption = f"{unit.capitalize()}s are counted from 0, in the order of the table."
    if profile.keyed:
        caption = f"{unit.capitalize()}s by their id."
    return table(
        list(enumerate(profile.most(_TOP_ROWS).to_pylist(), start=1)),
        ("rank", lambda row: row[0], count),
        (unit, lambda row: printable(row[1][key]), str),
        ("rows", lambda row: row[1]["rows"], count) if profile.sizes is not None else None,
        *columns,
        caption=caption,
        label=1,
    )


# The columns of the row table are named here alone.
def _open_columns(subject: Subject) -> tuple[Any, ...]:
    if subject.profile.is_noiseless:
        left_out = () if subject.profile.left_out is None else _LEFT_OUT_COLUMNS
        return (_DISTANCE, *left_out)
    title = f"attacker's certainty{subject.qualifier}"
    return (
        (title, lambda row: abs(row[1]["loss"]), certainty),
        ("evidence of", lambda row: _direction(row[1]["loss"]), str),
        ("expected over releases", lambda row: row[1].get("expected"), certainty),
    )


_DISTANCE: Any = ("distance", lambda row: row[1]["distance"], figure)
# Those of a model without noise, after the distance.
_LEFT_OUT_COLUMNS: tuple[Any, ...] = (
    ("prediction", lambda row: row[1]["prediction"], figure),
    ("without the row", lambda row: row[1]["prediction_without"], figure),
)
_DISTANCE_COLUMNS: tuple[Any, ...] = (
    _DISTANCE,
    ("certified to ±", lambda row: row[1]["distance_error"], cell_up),
)
_NATS_COLUMNS: tuple[Any, ...] = (
    ("exposure (nats)", lambda row: abs(row[1]["loss"]), figure),
    ("certified to ±", lambda row: _half_width(row[1]), cell_up),
    ("expected exposure (nats)", lambda row: row[1].get("expected"), figure),
)


def _in_nats(
    subject: Subject, groups: Sequence[Grouping], explanation: Explanation | None
) -> Section | None:
    """Return the exposures behind the certainties of the page."""
    if subject.profile.is_noiseless:
        return None
    return Section(
        id="nats",
        title="Exposures in nats",
        blocks=(
            _quantiles(subject, in_nats=True),
            _top_table(subject, _NATS_COLUMNS),
            *(
                groups_table(each, heading, "exposure")
                for heading, each in named_groups(groups, explanation)
            ),
        ),
    )


def _reach(profile: Profile, share: float) -> float:
    """Return a distance that certifiably at least this share of the rows do not exceed."""
    reach = profile.digest.reach
    return profile.quantile(share) if reach is None else float(reach.quantile(np.array([share]))[0])


def _influence_certificates(subject: Subject) -> Section:
    """Return what is certified of a model without noise."""
    profile = subject.profile
    texts = [top_sentence(profile.top), "The interval of every other shift follows from one step."]
    if profile.model_distance is not None:
        texts.append(
            "Shifts are those of the minimiser. The model is within"
            f" {number(profile.model_distance, 'up')} of it."
        )
    return Section(
        id="certificates",
        title="Certificates",
        blocks=(
            *(Text(text=text) for text in texts),
            _top_table(subject, _DISTANCE_COLUMNS),
        ),
    )


def _half_width(row: dict[str, Any]) -> float:
    """Return how far the loss may be from its figure."""
    low, loss, high = row["loss_low"], row["loss"], row["loss_high"]
    return float(max(high - loss, loss - low)) if low < high else 0.0


def _direction(loss: float) -> str:
    return "presence" if loss > 0 else "absence"


def _slider(subject: Subject) -> Section | None:
    slider = slider_of_profile(subject.profile, subject.release)
    if slider is None:
        return None
    return Section(
        id="slider",
        title="What another ε would reveal",
        blocks=(
            Text(
                text="Expected figures are means over all models that might be released at an ε."
                " The losses of this model do not change."
            ),
            slider_widget(slider),
        ),
        nav="Exposure",
    )


def _search(subject: Subject) -> Section | None:
    return Section(
        id="search",
        title=f"Find a {subject.unit}",
        blocks=(search_widget(subject.profile),),
        nav="Find a row",
    )


def _utility(fit: FitScores | None, forecast: Any) -> Section | None:
    if fit is None:
        return None
    models = ["this model", "base rate", "without noise (ε = ∞, not released)"]
    known = len(fit.score) > 1

    def columns(values: Sequence[float], base: float) -> Callable[[str], float | None]:
        by_model = dict(zip(models, (values[0], base, *values[1:2]), strict=False))
        return by_model.get

    scores = table(
        models if known else models[:2],
        ("model", lambda name: name, str),
        (fit.measure, columns(fit.score, fit.base_score), "{:.3f}".format),
        ("AUC", columns(fit.auc, 0.5), "{:.3f}".format) if fit.auc else None,
        ("log loss (nats)", columns(fit.log_loss, fit.base_log_loss), "{:.3f}".format)
        if fit.log_losses
        else None,
        caption="On the training rows, where a model does better than on new ones.",
    )
    blocks: list[Block] = [scores]
    if forecast is not None:
        blocks += [
            Text(text=symbols(f"{line[0].upper()}{line[1:]}"), small=True)
            for line in forecast.lines()
        ]
    return Section(
        id="utility", title="How useful the model is", blocks=tuple(blocks), nav="Utility"
    )


def _guarantee(subject: Subject) -> Section:
    profile, release = subject.profile, subject.release
    pairs = []
    if release is not None and release.mechanism.is_private:
        source = "seeded: not a private release" if release.seeded else "the operating system"
        pairs.append(("randomness", source))
    if release is not None:
        pairs.append(("model.json", release.audience.meaning))
    compared = {
        Neighbouring.REMOVE: "the data without the row",
        Neighbouring.ADD: "the data with the candidate added",
        Neighbouring.REPLACE: "the data with the row replaced",
    }[profile.relation]
    persons = profile.sizes is not None
    pairs.append(("compared with", "the data without the person's rows" if persons else compared))
    pairs.append(("model", symbols(one_line(profile.description))))
    return Section(
        id="guarantee",
        title="Guarantee and release",
        blocks=(
            *(Text(text=symbols(line)) for line in profile.guarantee),
            Facts(pairs=tuple(pairs)),
        ),
        nav="Details",
    )


def _certificates(subject: Subject) -> Section | None:
    profile, unit = subject.profile, subject.unit
    digest = profile.digest
    if profile.is_noiseless:
        return None if profile.left_out is None else _influence_certificates(subject)
    except_for = f", except {count(digest.unproved)} {unit}s" if digest.unproved else ""
    return Section(
        id="certificates",
        title="Certificates",
        blocks=(
            Text(
                text=f"Every loss is certified to ± {number(digest.half_width, 'up')}"
                f" nats{except_for}."
            ),
            Text(
                text=f"{percent(digest.inside / len(profile))} of the {unit}s show evidence of"
                " presence, the others of absence."
            ),
        ),
    )
