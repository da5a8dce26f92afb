"""Every bound that is printed is on the safe side of the value that was proved.

Random results of every kind are rendered in every form (terminal, Markdown, page, notebook). Each
figure behind a word of bound ("at most", "at least", "no more than", "proved to within", "±", the
ends of an interval, columns with such headings) is read back as an exact decimal number and held
against the few values that it can stand for. An upper bound must not read less than its value, nor
a lower bound more, and neither may be further off than its digits allow. A figure that no value
explains is a failure too: so a sentence with a bound cannot be added without a value to hold it to.
"""

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

import expost
from expost import Profile
from expost._counts import Share
from expost.attacks.lower_bounds import LowerBound
from expost.attacks.roc import Interval
from expost.defences.table import Cell, DefenceRow
from expost.jobs.publish import answer_lines
from expost.jobs.releases import Line, Listing
from expost.mechanisms import RowLosses
from expost.noise import NormLaplace
from expost.profiles.transcript import IndividualEpsilon
from expost.publishing.compare import compare
from expost.publishing.publish import ReleasedRows
from expost.report import collect, render_html, render_markdown
from expost.report.cards import CARDS
from expost.risk import EpsilonDelta, GaussianNoise, compare_compositions
from expost.types import Neighbouring
from read_figures import NUMBER, read
from report.conftest import fitted
from report.epsilon_choices import chosen
from report.results import ledger

SEEDS = range(12)
# What may stand between the word and the figure; '1 in k' and counts are no such figures.
_LINK = r"\s+(?:ε\s=\s|epsilon\s(?:=\s)?|an ε of\s)?"
# '75 % in 95 % of releases' is one.
_END = r"(?:(?<=%)|(?!\s(?:in|times|rows?|such|steps)\b))(?![\d⁰¹²³⁴⁵⁶⁷⁸⁹]|,\d|\s?%)"
AT_MOST = rf"(?:at most|no more than|not above|is above|proved to within|±){_LINK}?({NUMBER}){_END}"
AT_LEAST = rf"(?:at least|no less than|≥){_LINK}({NUMBER}){_END}"
INTERVAL = rf"({NUMBER}) \(({NUMBER}) (?:…|to) ({NUMBER})\)"


@dataclass
class Tally:
    """Figures that were checked; of them those on the wrong side, and those that nothing explains."""

    checked: int = 0
    wrong: list = field(default_factory=list)
    unexplained: list = field(default_factory=list)

    def figure(self, shown, values, *, up, digits=3, where=""):
        """Hold one figure against the values that it can stand for."""
        self.checked += 1
        number, percent = read(shown), shown.rstrip().endswith("%")
        near = False
        for value in values:
            exact = Decimal(repr(float(value)))
            room = abs(exact) * Decimal(10) ** (1 - digits) + (Decimal("0.001") if percent else 0)
            beyond = number - exact if up else exact - number
            if 0 <= beyond <= room:
                return
            near |= abs(beyond) <= room
        (self.wrong if near else self.unexplained).append((shown, tuple(values), up, where))

    def text(self, text, values, *, digits=3):
        """All figures behind a word of bound, in a text that has only these values."""
        for pattern, up in ((AT_MOST, True), (AT_LEAST, False)):
            for found in re.finditer(pattern, text):
                self.figure(found[1], values, up=up, digits=digits, where=text)

    def interval(self, text, low, high, *, scale=1):
        """The ends of every interval in a text that has one."""
        for found in re.finditer(INTERVAL, text):
            for shown, value, up in ((found[2], low, False), (found[3], high, True)):
                exact = scale * Decimal(repr(float(value)))
                number = read(shown)
                self.checked += 1
                room = Decimal("0.01") * scale
                if abs(number - exact) > room:
                    self.unexplained.append((shown, value, up, text))
                elif (number < exact) if up else (number > exact):
                    self.wrong.append((shown, value, up, text))

    def check(self, at_least):
        """No figure below its value, none that is not known, and as many as there must be."""
        said = f"{len(self.wrong)} of {self.checked} printed bounds are on the wrong side"
        print(said)
        assert not self.unexplained, f"no value explains {self.unexplained[:3]}"
        assert not self.wrong, f"{said}, such as {self.wrong[:3]}"
        assert self.checked >= at_least


@pytest.fixture
def tally():
    return Tally()


class _Tables(HTMLParser):
    """The cells of every table of a page, and its paragraphs."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.texts, self._text, self._depth = [], [], None, 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th", "p", "li", "dd", "dt", "desc", "output"):
            self._text = []

    def handle_endtag(self, tag):
        if self._text is None or tag not in ("td", "th", "p", "li", "dd", "dt", "desc", "output"):
            return
        text = " ".join("".join(self._text).split())
        if tag in ("td", "th") and self.tables:
            self.tables[-1][-1].append(text)
        else:
            self.texts.append(text)
        self._text = None

    def handle_data(self, data):
        if self._text is not None:
            self._text.append(data)


def page_of(summary):
    return _Tables(render_html(summary))


def markdown_tables(text):
    """Lists of rows of cells, the headings first."""
    tables, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            tables.append([rows[0], *rows[2:]])
            rows = []
    return tables


def column(tables, first, heading):
    """The cells of a column, of the tables whose first heading and whose own contain these."""
    for head, *rows in tables:
        if first in head[0]:
            place = next((i for i, text in enumerate(head) if heading in text), None)
            if place is not None:
                return [row[place] for row in rows]
    raise AssertionError(f"no column {heading!r} beside {first!r}")


def profile_of(seed):
    rng = np.random.default_rng(seed)
    rows, epsilon = 300, float(np.exp(rng.uniform(-2, 2)))
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


def test_of_a_profile(tally):
    for seed in SEEDS:
        profile = profile_of(seed)
        told = profile.figures
        for line in profile.lines():
            values = {
                "worst case": [told.worst_case],
                "confidence": [expit(told.outer)],
                "precision": [told.width / 2],
            }
            name = line.partition("  ")[0]
            tally.text(line, values.get(name, []), digits=2 if name == "precision" else 3)
            if name == "exposure":
                shown = re.fullmatch(
                    rf"exposure +median ({NUMBER}), 99 % ({NUMBER}), largest ({NUMBER}) nats?", line
                )
                for text, value in zip(
                    shown.groups(), (told.median, told.late, told.largest), strict=True
                ):
                    tally.figure(text, [value], up=True, where=line)
        summary = collect(profile)
        part = summary.profile
        scores = [told.worst_case, told.median, told.late, told.largest]
        scores += [np.max(profile.loss_high), -np.min(profile.loss_low)]
        values = [*scores, *expit(scores)]
        for sentence in (*summary.answer, *summary.lead(part)):
            tally.text(sentence, values)
            for shown in re.findall(rf"({NUMBER}) sure", sentence):
                tally.figure(shown, values, up=True, where=sentence)
        page, tables = page_of(summary), markdown_tables(render_markdown(summary))
        for text in page.texts:
            tally.text(text, [*values, part.precision])
        for found, heading, typical in (
            (page.tables, "exposure (nats) at most", "typical exposure at most"),
            (tables, "exposure (nats)", "typical"),
        ):
            for name, each in (
                (heading, [one.score for one in part.quantiles]),
                ("certainty", [expit(one.score) for one in part.quantiles]),
                (typical, [one.typical for one in part.quantiles]),
            ):
                cells = column(found, "share of the rows", name)
                for shown, value in zip(cells, each, strict=True):
                    tally.figure(shown, [value], up=True, where=name)
            for shown, row in zip(column(found, "rank", "proved"), part.top, strict=True):
                tally.figure(shown.lstrip("± \N{NO-BREAK SPACE}"), [row.precision], up=True)
    tally.check(600)


def test_of_a_published_report_and_its_answers(tally):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        noise = {} if seed % 2 else {"noise": "gaussian", "delta": 1e-5}
        release, _, _, _ = fitted(epsilon=float(np.exp(rng.uniform(-2, 2))), rows=60, **noise)
        failure = float(np.exp(rng.uniform(-9, -2)))
        report = expost.publish(replace(release, seeded=False), failure_probability=failure)
        wrong, epsilon = report.fails_with, report.spending.model[0]
        # δ at half of ε, the first figure of the curve.
        slip = release.mechanism.delta_at(epsilon / 2)
        for line in (*report.lines(), *report.statements):
            tally.text(line, [wrong, epsilon, slip])
        answers = [
            one
            for _ in range(4)
            for one in report.lookup({f"column {place}": rng.normal() for place in range(3)}, "yes")
        ]
        for one in answers:
            values = [one.exposure, one.belief, one.fails_with]
            for line in answer_lines(report, [one]):
                tally.text(line, values)
                if line.startswith("  exposure"):
                    tally.figure(re.search(NUMBER, line)[0], [one.exposure], up=True, where=line)
            for name, *cells in CARDS[type(one)](one).lines:
                each = (
                    (one.exposure, one.belief, one.fails_with)
                    if name == "the model"
                    else (one.everything, one.belief_in_everything, one.everything_fails_with)
                )
                for shown, value in zip(cells, each, strict=True):
                    tally.figure(shown.removesuffix(" sure"), [value], up=True, where=name)
            summary = collect(report, answers=[one])
            page, tables = page_of(summary), markdown_tables(render_markdown(summary))
            for found in (page.tables, tables):
                for name, value in (
                    ("exposure at most", one.exposure),
                    ("how sure an attacker", one.belief),
                    ("wrong with", one.fails_with),
                ):
                    (shown,) = column(found, found[0][0][0], name)
                    tally.figure(shown, [value], up=True, where=name)
            for text in page.texts:
                tally.text(text, [*values, epsilon, slip])
    tally.check(600)


def test_of_risks(tally):
    rng = np.random.default_rng(5)
    asked = [
        *({"epsilon": float(np.exp(one)), "delta": 1e-5} for one in rng.uniform(-3, 2, 12)),
        *({"epsilon": float(np.exp(one))} for one in rng.uniform(-3, 2, 12)),
        *({"mu": float(one)} for one in rng.uniform(0.05, 2, 6)),
        *({"belief": float(one), "delta": 1e-5} for one in rng.uniform(0.55, 0.95, 6)),
        *({"advantage": float(one), "delta": 1e-5} for one in rng.uniform(0.05, 0.8, 6)),
    ]
    for one in asked:
        found = expost.identifiability(**one)
        for line in found.figures:
            known = ("belief", "advantage", "true_positive_rate", "one_in")
            if line.name not in (*known, "delta_at_half", "delta_at_double"):
                continue
            for key, value in line.by.items():
                if key != "paper" and not line.shown[key].startswith("<"):
                    tally.figure(line.shown[key], [value], up=line.name != "one_in", digits=2)
    for size, count in zip(rng.uniform(0.01, 0.5, 8), rng.integers(2, 40, 8), strict=True):
        found = compare_compositions([GaussianNoise(mu=float(size))] * int(count), delta=1e-5)
        lines = {line.split()[0]: re.split(r"\s{2,}", line) for line in found.lines()[3:7]}
        cards = {line[0]: line for line in CARDS[type(found)](found).lines}
        for row in found.rows:
            _, epsilon, _, belief, advantage = lines[row.name]
            tally.figure(epsilon, [row.epsilon], up=True, digits=4)
            for shown, value in ((belief, row.belief), (advantage, row.advantage)):
                tally.figure(shown, [value], up=True, digits=2, where=lines[row.name])
            _, epsilon, _, belief, advantage = cards[row.name]
            tally.figure(epsilon, [row.epsilon], up=True)
            for shown, value in ((belief, row.belief), (advantage, row.advantage)):
                tally.figure(shown, [value], up=True, where=row.name)
    tally.check(300)


def test_of_ledgers(tally):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        entries = tuple(
            replace(one, epsilon=float(rng.uniform(0.01, 3)), delta=float(rng.uniform(0, 1e-4)))
            for one in ledger().entries
        )
        entries = tuple(
            replace(one, guarantee=EpsilonDelta(epsilon=one.epsilon, delta=one.delta))
            for one in entries
        )
        found = replace(ledger(), entries=entries)
        total = found.epsilon_by_addition, found.delta_by_addition
        lines = tuple(Line(entry=one, ledger=None, rows="A") for one in entries)
        sentences = " ".join(Listing(releases=lines, delta=1e-3).sentences())
        card = CARDS[type(found)](found)
        for text, pattern in (
            (sentences, rf"epsilon ({NUMBER}), delta ({NUMBER})"),
            (card.sentences[0], rf"ε = ({NUMBER}) and δ = ({NUMBER})"),
        ):
            for shown, value in zip(re.search(pattern, text).groups(), total, strict=True):
                tally.figure(shown, [value], up=True, where=text)
        for entry, (*_, epsilon, delta) in zip(entries, card.lines, strict=True):
            tally.figure(epsilon, [entry.epsilon], up=True)
            tally.figure(delta, [entry.delta], up=True)
    tally.check(100)


def test_of_audits(tally):
    rng = np.random.default_rng(6)
    for _ in range(100):
        found = LowerBound(
            epsilon=float(rng.uniform(0.01, 4)),
            delta=1e-5,
            confidence=0.95,
            method="one run",
            detail="20 of 21 right",
            most=float(rng.uniform(4, 9)),
            assumption="",
        )
        tally.text(found.sentence, [found.epsilon])
        shown = re.search(rf"up to ({NUMBER})", found.sentence)[1]
        tally.figure(shown, [found.most], up=True, where=found.sentence)
        low, value, high = (float(one) for one in np.sort(rng.uniform(0, 1, 3)))
        tally.interval(str(Interval(value=value, low=low, high=high, confidence=0.95)), low, high)
        share = Share(hits=int(rng.integers(1, 99)), trials=100, confidence=0.95)
        tally.interval(str(share), share.low, share.high)
        cell = Cell(shares=(share,))
        tally.interval(str(cell), share.low, share.high, scale=100)
        row = DefenceRow(name="", train=cell, test=cell, attack=cell, limit=value, by="loss")
        tally.figure(row.limit_in_words, [100 * value], up=True, digits=1)
    tally.check(800)


def test_of_audits_on_a_page(tally):
    from report.audits import audited

    for kind in ("promised", "memorised", "nothing"):
        audit = audited(kind)
        for line in audit.promise_lines():
            tally.text(line, [] if audit.advantage_bound is None else [audit.advantage_bound])
        table = markdown_tables(render_markdown(collect(audit)))
        names = ("auc", "accuracy", "advantage", "tpr_at_1_percent", "tpr_at_01_percent")
        (attacks,) = (rows for head, *rows in table if head[0] == "attack")
        for (_, *cells), one in zip(attacks, collect(audit).audit.attacks, strict=True):
            for cell, name in zip(cells, names, strict=True):
                figures = getattr(one, name)
                tally.interval(cell, figures.low, figures.high)
    tally.check(70)


def test_of_other_results(tally):
    rng = np.random.default_rng(7)
    for seed in range(20):
        cost = expost.selection.selection_cost(rng.normal(size=6), 1.0, float(rng.uniform(0.3, 3)))
        for text in (str(cost), CARDS[type(cost)](cost).sentences[0]):
            tally.text(text, [cost.shortfall_bound])
        spent = IndividualEpsilon(
            epsilon=rng.exponential(size=201),
            delta=1e-5,
            worst_case=float(rng.uniform(3, 9)),
            filtered=True,
        )
        text = spent.lines()[1]
        largest = float(np.max(spent.epsilon))
        tally.figure(re.search(rf"largest ({NUMBER})", text)[1], [largest], up=True, where=text)
        shown = re.search(rf"more than ({NUMBER})", spent.meaning)[1]
        tally.figure(shown, [spent.worst_case], up=True, where=spent.meaning)
        profile = profile_of(100 + seed)
        beliefs = profile.identifiability()
        either = max(np.max(profile.loss_high), -np.min(profile.loss_low))
        (text,) = (line for line in beliefs.lines() if line.startswith("either way"))
        tally.text(text, [expit(either)])
        exposures = np.abs(profile.loss)
        card = CARDS[type(profile.losses)](profile.losses)
        tally.text(card.sentences[0], [profile.worst_case])
        quantiles = np.quantile(exposures, (0.5, 0.9, 0.99, 1.0), method="higher")
        for (_, shown), value in zip(card.lines, quantiles, strict=True):
            tally.figure(shown, [value], up=True, where="quantiles")
    tally.check(150)


def test_of_a_data_dependent_report_and_its_comparison(tally):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(400, 2)) / 6
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=400) > 0, "yes", "no")
    for _ in range(4):
        gradient, hessian, delta, failure = rng.uniform((0.2, 0.2, 1e-6, 0.01), (1, 1, 1e-4, 0.05))
        budget = expost.publishing.PublishingBudget(
            epsilon_gradient=gradient,
            epsilon_hessian=hessian,
            delta=delta,
            failure_probability=failure,
        )
        model = expost.PrivateLogisticRegression(
            mechanism="objective",
            epsilon=float(rng.uniform(0.5, 3)),
            regularization="for-publishing",
            publishing=budget,
            data_norm=1.0,
            classes=["no", "yes"],
        ).fit(X, y)
        report = expost.publish(
            model,
            X,
            y,
            kind="data-dependent",
            epsilon_gradient=gradient,
            epsilon_hessian=hessian,
            delta=delta,
            failure_probability=failure,
        )
        spent = report.spending
        slip = model.release_.mechanism.delta_at(spent.model[0] / 2)
        for line in (*report.lines(), *report.statements):
            tally.text(line, [report.fails_with, spent.model[0], slip])
            if line.startswith("in all"):
                shown = re.fullmatch(
                    rf"in all +epsilon ({NUMBER}) by addition, ({NUMBER}) composed, delta ({NUMBER})",
                    line,
                )
                for text, value in zip(
                    shown.groups(), (*spent.sequential[:1], *spent.together), strict=True
                ):
                    tally.figure(text, [value], up=True, where=line)
        for one in report.lookup({"column 0": 0.1, "column 1": 0.2}):
            values = [one.exposure, one.belief, one.belief_in_everything, one.fails_with]
            for line in answer_lines(report, [one]):
                tally.text(line, [*values, one.everything_fails_with])
                costs = re.search(rf"epsilon ({NUMBER}), its Hessian ({NUMBER})", line)
                if costs:
                    tally.figure(costs[1], [one.epsilon_gradient], up=True, where=line)
                    tally.figure(costs[2], [one.epsilon_hessian], up=True, where=line)
        found = compare(report, ReleasedRows.of_arrays(model.release_, X, y))
        (text,) = (line for line in found.lines() if line.startswith("published"))
        shown = re.search(rf"median ({NUMBER}), largest ({NUMBER}) nats", text)
        tally.figure(shown[1], [found.figures.median_bound], up=True, where=text)
        tally.figure(shown[2], [found.figures.largest_bound], up=True, where=text)
    tally.check(60)


def test_of_a_choice_of_epsilon(tally):
    for kind in ("laplace", "gaussian", "regression"):
        choice = chosen(kind)
        summary = collect(choice)
        part = summary.epsilon
        (reached,) = choice.posterior_at(np.array([choice.recommended or choice.ceiling]))
        page, tables = page_of(summary), markdown_tables(render_markdown(summary))
        for found in (page.tables, tables):
            for name, each in (
                ("posterior", [row.posterior for row in part.table]),
                ("noise ratio r", [row.noise_ratio for row in part.table]),
                ("middle row", [row.middle for row in part.table]),
                ("largest", [row.largest for row in part.table]),
            ):
                cells = column(found, "ε", name)
                for shown, value in zip(cells, each, strict=True):
                    if not shown.replace("\\", "").startswith("<"):
                        tally.figure(shown, [value], up=True, where=name)
        for text in page.texts:
            tally.text(text, [part.lost, reached])
        slider = part.slider
        start = slider.figures(slider.start)
        shown = [text for text in page.texts if re.fullmatch(NUMBER, text)][: len(start.typical)]
        for text, value in zip(shown, start.typical, strict=True):
            tally.figure(text, [value], up=True, where="slider")
    tally.check(300)


def test_no_source_rounds_a_bound_to_the_nearest():
    """What random results do not reach: texts whose figure has a format of its own."""
    pattern = re.compile(
        r"(?:at most|at least|no more than|more than|proved to within|±|is above)"
        r"[^\"{}]{0,12}\{(?!_?[A-Z_]+[:}])[^{}]*?:,?\.?\d*[gfe%]\}"
    )
    source, found = Path(expost.__file__).parent, []
    for path in sorted(source.rglob("*.py")):
        if "reproduce" in path.parts:
            continue
        # Strings that follow each other are one.
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text())
        found += [f"{path.name}: {one[0]}" for one in pattern.finditer(text)]
    assert not found
