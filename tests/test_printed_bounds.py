"""Every bound that is printed is on the safe side of the value that was proved.

Random results of every kind become documents. Of each table the columns whose title states a bound
("at most", "at least", "±") are read back as exact decimal numbers and held against the unformatted
values behind the cells. Every figure that follows a word of bound, in any text of the document, in
the terminal text, in Markdown and on the page, is held against the few values that it can stand for.
An upper bound must not read less than its value, nor a lower bound more, and neither may be further
off than its digits allow. A figure that no value explains is a failure too: so no sentence with a
bound can be added without a value to hold it to.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

import expost
from expost import Profile, numbers
from expost.auditing.lower_bounds import LowerBound
from expost.auditing.roc import AttackFigures, Interval
from expost.ledger import Listing
from expost.mechanisms import RowLosses
from expost.mechanisms.dpsgd import SGDMechanism, Transcript
from expost.noise import NormLaplace
from expost.profiles.digest import POSTERIOR
from expost.profiles.transcript import individual_epsilon
from expost.publishing.compare import compare
from expost.publishing.publish import ReleasedRows, publish
from expost.report import document_of, render_html, render_markdown, render_text
from expost.report.document import Bullets, Facts, Text
from expost.report.figure import Figure
from expost.report.slider import slider_of_choice
from expost.risk import EpsilonDelta, GaussianNoise, compare_compositions
from expost.selection import selection_cost
from expost.types import Neighbouring
from read_figures import NUMBER, read
from report.audits import audited
from report.cells import blocks, tables
from report.epsilon_choices import chosen
from report.results import RESULTS, estimated, ledger

# What may stand between the word and the figure.
_LINK = r"\s+(?:[εδ]\s=\s|the\s|about\s)?"
# Counts ("at most 3 rows", "at most 2 times") are no such figures; '75 % in 95 % of releases' is one.
_END = r"(?:(?<=%)|(?!\s(?:in|times|rows?|steps)\b))(?![\d⁰¹²³⁴⁵⁶⁷⁸⁹]|,\d|\.\d|\s?[%×]|e[-+])"
_UPPER = r"(?:at most|no more than|more than|exceeds|except with probability|±|allows)"
AT_MOST = re.compile(rf"{_UPPER}{_LINK}({NUMBER}){_END}")
AT_LEAST = re.compile(rf"(?:at least|no less than|≥|[Uu]p to ε =){_LINK}({NUMBER}){_END}")
INTERVAL = re.compile(rf"{NUMBER} \(({NUMBER}) to ({NUMBER})\)")
_CERTAINTY = re.compile("certainty|posterior")
_BOUND_ABOVE = re.compile("at most|±")
_BOUND_BELOW = re.compile("at least")


@cache
def posterior(log_odds):
    """The posterior at log odds, with more digits than a float has."""
    if math.isinf(log_odds):
        return Decimal(int(log_odds > 0))
    with localcontext(prec=400):
        return 1 / (1 + (-Decimal(repr(float(log_odds)))).exp())


def exact(value):
    return value if isinstance(value, Decimal) else Decimal(repr(float(value)))


@dataclass
class Tally:
    """Figures that were checked; of them those on the wrong side, and those that nothing explains."""

    checked: int = 0
    wrong: list = field(default_factory=list)
    unexplained: list = field(default_factory=list)

    def figure(self, shown, values, *, up, digits=3, where=""):
        """Hold a figure against the values that it can stand for."""
        self.checked += 1
        if shown in ("∞", "−∞"):
            if not any(math.isinf(value) for value in values):
                self.unexplained.append((shown, where))
            return
        if shown == "< 100 %":
            if not any(0 < 1 - exact(value) < Decimal("1e-6") for value in values):
                self.unexplained.append((shown, where))
            return
        number, percent = read(shown), shown.rstrip().endswith("%")
        near = False
        for value in map(exact, values):
            if value.is_infinite():
                continue
            room = abs(value) * Decimal(10) ** (1 - digits) + (Decimal("0.001") if percent else 0)
            beyond = number - value if up else value - number
            if 0 <= beyond <= room:
                return
            near |= abs(beyond) <= room
        (self.wrong if near else self.unexplained).append((shown, up, where))

    def text(self, text, values):
        """Check all figures that follow a word of bound, in a text that has only these values."""
        for pattern, up in ((AT_MOST, True), (AT_LEAST, False)):
            for match in pattern.finditer(text):
                self.figure(match[1], values, up=up, where=text)

    def intervals(self, text, pairs, where=""):
        """Check the ends of every interval in a text, of those (low, high)."""
        for match in INTERVAL.finditer(text):
            self.checked += 1
            low, high = read(match[1]), read(match[2])
            room = Decimal("0.001")
            ends = [(exact(a), exact(b)) for a, b in pairs]
            if any(0 <= a - low < room and 0 <= high - b < room for a, b in ends):
                continue
            near = any(abs(a - low) < room and abs(high - b) < room for a, b in ends)
            (self.wrong if near else self.unexplained).append((match[0], where))

    def table(self, table, values, *, probabilities=False, spent=True):
        """Check the columns whose title states a bound against the values behind the cells.

        ``probabilities``: what columns of certainties hold; they hold log odds otherwise.
        ``spent``: whether columns of ε and δ are of what is spent, and so upper bounds.
        """
        for index, column in enumerate(table.columns):
            below = _BOUND_BELOW.search(column.title)
            above = _BOUND_ABOVE.search(column.title)
            above = above or (spent and re.match("[εδ]( |$)", column.title))
            if not column.numeric or not (below or above):
                continue
            for cells, row in zip(table.cells, table.values, strict=True):
                shown, value = cells[index], row[index]
                if value is None:
                    assert shown == "–"
                    continue
                if isinstance(value, str):
                    # The cell was formatted before: any value of the document can explain it.
                    bound, _, error = shown.partition(" ± ")
                    self.figure(bound, values, up=True, where=column.title)
                    if error:
                        self.figure(error, values, up=True, digits=2, where=column.title)
                    continue
                if _CERTAINTY.search(column.title) and not probabilities:
                    value = posterior(value)
                self.figure(shown, [value], up=not below, where=column.title)

    def document(self, document, values, *, probabilities=False):
        """Check all tables and texts of a document, in every format."""
        for table in tables(document):
            self.table(table, values, probabilities=probabilities, spent=not probabilities)
        for text in (*texts(document), *rendered(document)):
            self.text(text, values)

    def check(self, at_least):
        """No figure below its value, none that is not known, and as many as there must be."""
        summary = f"{len(self.wrong)} of {self.checked} printed bounds are on the wrong side"
        print(summary)
        assert not self.unexplained, f"no value explains {self.unexplained[:3]}"
        assert not self.wrong, f"{summary}, such as {self.wrong[:3]}"
        assert self.checked >= at_least, self.checked


# -- texts of documents ----------------------------------------------------------------------------


def texts(document):
    """Every text of a document that is not a cell of a table."""
    if document.verdict is not None:
        yield from (document.verdict.text, document.verdict.more)
    for tile in document.tiles:
        yield from (tile.value, *tile.lines)
    for alert in document.alerts:
        yield from (alert.title, alert.text)
    yield from (document.title, *document.subtitle)
    for block in blocks(document):
        match block:
            case Text(text=text):
                yield text
            case Bullets(items=items):
                yield from items
            case Facts(pairs=pairs):
                yield from (f"{name} {value}" for name, value in pairs)
            case Figure():
                yield from (block.description, block.caption)
                yield from (rule.name for panel in block.panels for rule in panel.rules)


class _Html(HTMLParser):
    """The cells of every table of a page, and its other texts."""

    _BLOCKS = (
        *("p", "li", "dd", "dt", "td", "th", "h1", "h2", "h3"),
        *("desc", "text", "output", "caption", "figcaption"),
    )

    def __init__(self, page):
        super().__init__()
        self.tables, self.texts, self._text = [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in self._BLOCKS:
            self._text = []

    def handle_endtag(self, tag):
        if self._text is None or tag not in self._BLOCKS:
            return
        text = " ".join("".join(self._text).split())
        if tag in ("td", "th"):
            self.tables[-1][-1].append(text)
        else:
            self.texts.append(text)
        self._text = None

    def handle_data(self, data):
        if self._text is not None:
            self._text.append(data)


def markdown_tables(text):
    """Lists of rows of cells, the headings first."""
    result, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            rows.append([re.sub(r"\\(.)", r"\1", cell).strip() for cell in cells])
        elif rows:
            result.append([rows[0], *rows[2:]])
            rows = []
    return result


def single_spaced(text):
    return " ".join(text.split())


def cells_of(table):
    titles = [single_spaced(column.title) for column in table.columns]
    return [titles, *([single_spaced(cell) for cell in row] for row in table.cells)]


def rendered(document):
    """The texts of a document in every format, whose tables have the cells of the document."""
    markdown, page = render_markdown(document), _Html(render_html(document))
    terminal = render_text(document)
    in_markdown = [
        [[*map(single_spaced, row)] for row in each] for each in markdown_tables(markdown)
    ]
    lines = {single_spaced(line) for line in terminal.splitlines()}
    for table in tables(document):
        cells = cells_of(table)
        assert cells in in_markdown
        assert cells in page.tables
    brief = replace(
        document, sections=tuple(section for section in document.sections if section.brief)
    )
    for table in tables(brief):
        for row in cells_of(table):
            assert single_spaced(" ".join(row)) in lines
    yield from page.texts
    yield from re.sub(r"\\(.)", r"\1", markdown).splitlines()
    yield from lines


# -- random results --------------------------------------------------------------------------------


def profile_of(seed, rows=300):
    rng = np.random.default_rng(seed)
    epsilon = float(np.exp(rng.uniform(-2, 2)))
    distance = np.minimum(rng.lognormal(-3, 1, rows), 0.9) * epsilon
    loss, width = distance * rng.uniform(-1, 1, rows), np.exp(rng.uniform(-20, -6, rows))
    losses = RowLosses(
        loss=loss,
        low=loss - width,
        high=loss + width,
        distance=distance,
        distance_error=np.full(rows, 1e-9),
        relation=Neighbouring.REMOVE,
        law=NormLaplace(rate=1.0, dimension=6).law(distance),
        worst_case=epsilon,
        worst_case_passed=float(rng.uniform(0, 0.1)) if seed % 3 == 0 else 0.0,
    )
    return Profile(losses=losses, description="a model", rows=rows)


def values_of_profile(profile):
    """What the texts of a profile can state: losses, certainties, widths and probabilities."""
    digest = profile.digest
    odds = [profile.worst_case, digest.outer, profile.quantile(0.5)]
    plain = [profile.worst_case, profile.terms.worst_case_passed, digest.half_width, POSTERIOR]
    return [*plain, *map(posterior, odds), *values_of_posterior(profile.identifiability())]


def values_of_posterior(result):
    prior, digest, worst = float(logit(result.prior)), result.digest, result.worst_case
    highest, lowest = digest.highest.largest, result.lowest_loss
    odds = [prior + highest, -(prior + lowest), prior + result.losses.worst_case]
    odds += [prior + digest.most_certain.loss_high, -digest.least.loss_low]
    advantages = [result.most_certain_advantage, result.largest_advantage]
    plain = [worst.failure, worst.advantage, worst.true_positive_rate, result.prior]
    plain += [each.high for each in advantages] + [each.error for each in advantages]
    return [*plain, *map(posterior, odds)]


def of_profiles(tally, seeds=range(8)):
    for seed in seeds:
        profile = profile_of(seed)
        tally.document(document_of(profile), values_of_profile(profile))


def of_posteriors(tally, seeds=range(8)):
    for seed in seeds:
        result = profile_of(100 + seed).identifiability((0.5, 0.2, 0.5, 0.01)[seed % 4])
        tally.document(document_of(result), values_of_posterior(result))


def of_choices(tally, kinds=("laplace", "gaussian", "objective", "regression", "none")):
    for kind in kinds:
        choice = chosen(kind)
        document = document_of(choice)
        (reached,) = choice.posterior_at(np.array([choice.recommended or choice.ceiling]))
        values = [reached, 20 * np.log(len(choice.epsilons) / 0.05), choice.ceiling, choice.low]
        values += choice.frontier[0].posterior[[0, -1]].tolist()
        if choice.recommended is not None:
            mechanism = choice.plan(document.facts["recommended"])
            odds = mechanism.worst_case + abs(float(logit(choice.limit.prior)))
            values += [posterior(odds), mechanism.worst_case_passed]
        if choice.posteriors is not None:
            bounds = choice.posteriors
            values += [bounds.row, bounds.all_rows, bounds.certainty]
        curve, slider = choice.utility.leading, slider_of_choice(choice)
        values += [*(np.maximum(curve.gap, 0) / curve.best_gain)]
        if slider is not None:
            values += [slider.accuracy, *slider.figures(slider.start).exposures]
        tally.document(document, values, probabilities=True)
        # These columns are bounds too, and their titles leave the word out.
        for table in tables(document):
            for index, heading in enumerate(table.columns):
                if not re.search(r"posterior|nats|noise ratio", heading.title):
                    continue
                for cells, row in zip(table.cells, table.values, strict=True):
                    if row[index] is not None:
                        tally.figure(cells[index], [row[index]], up=True, where=heading.title)


def of_published(tally, seeds=range(4)):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 3))
        y = np.where(X[:, 0] > 0, "yes", "no")
        noise = {"noise": "laplace"} if seed % 2 else {"noise": "gaussian", "delta": 1e-5}
        epsilon = float(np.exp(rng.uniform(-2, 2)))
        model = expost.PrivateLogisticRegression(
            epsilon=epsilon, data_norm=8.0, classes=("no", "yes"), **noise
        ).fit(X, y)
        report = publish(model, failure_probability=float(np.exp(rng.uniform(-9, -2))))
        answers = report.lookup({f"column {index}": rng.normal() for index in range(3)})
        mechanism = model.release_.mechanism
        values = [report.fails_with, epsilon, posterior(epsilon), mechanism.worst_case]
        values += [mechanism.worst_case_passed, posterior(mechanism.worst_case)]
        values += [mechanism.delta_at(times * epsilon) for times in (0.5, 1, 2)]
        tally.document(document_of(report), values)
        for answer in answers:
            values += [posterior(answer.everything), posterior(answer.exposure)]
            values += [answer.everything, answer.fails_with, answer.everything_fails_with]
        tally.document(document_of(report, answers=answers), values)
        for answer in answers:
            tally.document(document_of(answer), values)
        result = compare(report, ReleasedRows.of_arrays(model.release_, X, y))
        tally.document(document_of(result), [result.figures.fails_with])


def of_ledgers(tally, seeds=range(8)):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        entries = []
        for entry in ledger().entries:
            epsilon, delta = float(rng.uniform(0.01, 3)), float(rng.uniform(0, 1e-4))
            guarantee = EpsilonDelta(epsilon=epsilon, delta=delta)
            entries.append(replace(entry, epsilon=epsilon, delta=delta, guarantee=guarantee))
        listing = Listing.of([(entry, Path("ledger")) for entry in entries], delta=1e-3)
        values = [posterior(listing.loss), listing.delta]
        tally.document(document_of(listing), values)


def of_compositions(tally, seeds=range(8)):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        noises = [GaussianNoise(mu=float(rng.uniform(0.02, 0.6)))] * int(rng.integers(2, 30))
        delta = float(np.exp(rng.uniform(-14, -5)))
        result = compare_compositions(noises, delta=delta, prior=(0.5, 0.1)[seed % 2])
        tally.document(document_of(result), [delta])


def transcript_of(seed, rows=40):
    rng = np.random.default_rng(seed)
    mechanism = SGDMechanism(rows=rows, noise_multiplier=float(rng.uniform(0.5, 4)), clip=1.0)
    transcript, lengths = Transcript(mechanism), rng.uniform(0.1, 1.0, rows)
    for _ in range(3):
        for _ in range(4):
            inner = rng.normal(size=rows) * lengths * mechanism.noise_scale
            transcript.add_known(np.arange(rows), inner, lengths**2, mechanism.noise_scale)
            transcript.end_step()
        transcript.end_epoch()
    return transcript


def of_trainings(tally, seeds=range(4)):
    for seed in seeds:
        transcript = transcript_of(seed)
        worst = float(np.max(np.abs(transcript.loss)))
        document = document_of(transcript)
        half = np.quantile(np.abs(transcript.loss), 0.5, method="inverted_cdf")
        allowed = transcript.guarantee().loss(1e-5)
        tally.document(document, [posterior(worst), posterior(half), posterior(allowed)])
        for shown in re.findall(rf"is ({NUMBER}) certain", document.verdict.more):
            tally.figure(shown, [posterior(worst)], up=True, where=document.verdict.more)
        result = individual_epsilon(transcript, 1e-5)
        values = [float(np.max(result.epsilon)), result.worst_case]
        tally.document(document_of(result), values)


def of_small_results(tally, seeds=range(20)):
    for seed in seeds:
        losses = profile_of(200 + seed).losses
        tally.document(document_of(losses), [losses.worst_case])
        rng = np.random.default_rng(seed)
        bound = LowerBound(
            epsilon=float(rng.uniform(0.01, 4)),
            delta=1e-5,
            confidence=0.95,
            method="one run",
            detail="20 of 21 right",
            most=float(rng.uniform(4, 9)),
            assumption="",
        )
        tally.document(document_of(bound), [bound.epsilon])
        ends = [sorted(map(float, rng.uniform(0, 1, 3))) for _ in range(5)]
        names = ("auc", "accuracy", "advantage", "tpr_at_1_percent", "tpr_at_01_percent")
        intervals = (Interval(value=b, low=a, high=c, confidence=0.95) for a, b, c in ends)
        figures = AttackFigures(
            **dict(zip(names, intervals, strict=True)), members=50, non_members=50
        )
        tally.intervals(document_of(figures).verdict.text, [(a, c) for a, _, c in ends])
        cost = selection_cost(rng.uniform(0, 9, 5), 1.0, float(rng.uniform(0.1, 2)))
        tally.document(document_of(cost), [cost.shortfall_bound])
    for result in (estimated(), RESULTS["neighbours"](), RESULTS["coverage"]()):
        tally.document(document_of(result), [np.max(getattr(result, "error_bound", 0.0))])


def of_risks(tally, seeds=range(6)):
    rng = np.random.default_rng(5)
    for _ in seeds:
        epsilon, mu = float(np.exp(rng.uniform(-3, 2))), float(rng.uniform(0.05, 2))
        for question in (
            {"epsilon": epsilon, "delta": 1e-5},
            {"epsilon": epsilon, "prior": 0.1},
            {"epsilon": epsilon / 9, "delta": 1e-6, "releases": 4},
            {"mu": mu},
        ):
            result = expost.identifiability(**question)
            document = document_of(result)
            # Routes have a column each, and figures a line, whose side is that of the figure.
            for table in tables(document):
                if table.columns[0].title == "composed by":
                    tally.table(table, [])
                    continue
                for cells, row in zip(table.cells, table.values, strict=True):
                    if row[0] not in _UPPER_FIGURES:
                        continue
                    for shown, value in zip(cells[1:], row[1:], strict=True):
                        if shown != "–" and not shown.startswith("<"):
                            tally.figure(shown, [value], up=True, digits=2, where=row[0])
            bounds = [each for each in result.figures if each.name in ("posterior", "advantage")]
            values = [value for each in bounds for value in each.by.values()]
            for tile in document.tiles:
                if tile.label in ("Attacker's certainty", "Posterior", "Membership advantage"):
                    tally.text(tile.value, values)
            for _ in rendered(document):
                pass


_UPPER_FIGURES = (
    "posterior",
    "advantage",
    "true_positive_rate",
    "delta_at_half",
    "delta_at_double",
)


def of_audits(tally, kinds=("promised", "memorised", "nothing")):
    for kind in kinds:
        audit = audited(kind)
        document = document_of(audit)
        values = [bound.epsilon for bound in audit.bounds] + [audit.advantage_bound or 0.0]
        for table in tables(document):
            for index, column in enumerate(table.columns):
                if column.title != "ε is at least":
                    continue
                for cells, row in zip(table.cells, table.values, strict=True):
                    tally.figure(cells[index], [row[index]], up=False, where=column.title)
                    assert row[index] in values
        ends = [
            (interval.low, interval.high)
            for figures in audit.figures.values()
            for interval in vars(figures).values()
            if isinstance(interval, Interval)
        ]
        for text in rendered(document):
            if "ε is at least" in text:
                tally.text(text, values)
        for table in tables(document):
            for cell in (cell for row in table.cells for cell in row if "TPR" not in cell):
                if table.columns[0].title == "attack" and "%" not in cell:
                    tally.intervals(cell, ends, where=cell)


CASES: dict[str, tuple[Callable, int]] = {
    "profiles": (of_profiles, 400),
    "posteriors": (of_posteriors, 120),
    "choices": (of_choices, 400),
    "published reports": (of_published, 200),
    "ledgers": (of_ledgers, 100),
    "compositions": (of_compositions, 90),
    "trainings": (of_trainings, 20),
    "small results": (of_small_results, 200),
    "risks": (of_risks, 100),
    "audits": (of_audits, 20),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_of(name):
    tally = Tally()
    case, at_least = CASES[name]
    case(tally)
    tally.check(at_least)


# -- power -----------------------------------------------------------------------------------------


def _nearest_significant(value, digits, side="nearest"):
    return Decimal(f"{float(value):.{digits - 1}e}")


def _nearest_percent(probability, doubt=None):
    return f"{100 * float(probability):.1f} %"


def _nearest_certainty(log_odds):
    return _nearest_percent(posterior(log_odds))


MUTANTS = {
    "number": ("significant", _nearest_significant),
    "percent": ("percent_at_most", _nearest_percent),
    "certainty": ("certainty_at_most", _nearest_certainty),
}


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        ("number", of_profiles),
        ("number", of_published),
        ("number", of_ledgers),
        ("number", of_compositions),
        ("number", of_trainings),
        ("number", of_small_results),
        ("percent", of_compositions),
        ("certainty", of_profiles),
        ("certainty", of_posteriors),
        ("certainty", of_published),
        ("certainty", of_ledgers),
        ("certainty", of_compositions),
    ],
)
def test_rounding_to_the_nearest_is_noticed(monkeypatch, mutant, case):
    name, nearest = MUTANTS[mutant]
    monkeypatch.setattr(numbers, name, nearest)
    tally = Tally()
    case(tally)
    assert tally.wrong
    with pytest.raises(AssertionError):
        tally.check(0)


def test_a_figure_that_no_value_explains_is_noticed():
    document = document_of(profile_of(0))
    values = values_of_profile(profile_of(0))
    text = f"{document.verdict.text} Rows lose at most 0.123 nats."
    tally = Tally()
    tally.document(replace(document, verdict=replace(document.verdict, text=text)), values)
    assert tally.unexplained


def test_no_source_rounds_a_bound_to_the_nearest():
    """What random results do not reach: texts whose figure has a format of its own."""
    pattern = re.compile(
        r"(?:at most|at least|no more than|more than|certified to ±|±|is above)"
        r"[^\"{}]{0,12}\{(?!_?[A-Z_]+[:}])[^{}]*?:,?\.?\d*[gfe%]\}"
    )
    source, matches = Path(expost.__file__).parent, []
    for path in sorted(source.rglob("*.py")):
        # Strings that follow each other are one.
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text())
        matches += [f"{path.name}: {match[0]}" for match in pattern.finditer(text)]
    assert not matches
