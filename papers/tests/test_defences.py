"""The table of defences: its figures against naive ones, its games against known answers."""

import doctest
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from expost._counts import Share
from expost.auditing.evidence import Evidence
from expost.errors import InvalidInput, MissingExtra, PrivacyLeakWarning, SeededReleaseWarning
from expost.estimators import PrivateLogisticRegression
from expost.types import Audience
from papers.lecture import compare
from papers.lecture.compare import compare_defences, strongest_attack
from papers.lecture.defence import LogisticDefence
from papers.lecture.table import Cell, DefenceRow, DefenceTable


def overfitted(rows, *, seed=0, classes=3, features=40):
    """Rows of weakly separated classes in so many dimensions that a free model fits them all."""
    rng = np.random.default_rng(seed)
    centres = 0.35 * rng.standard_normal((classes, features))
    y = rng.integers(classes, size=rows)
    return centres[y] + rng.standard_normal((rows, features)), y


def cell(*hits, trials=100, confidence=0.95):
    return Cell(shares=tuple(Share(hits=h, trials=trials, confidence=confidence) for h in hits))


@dataclass(frozen=True)
class Memory:
    """Knows the labels of its own rows, and guesses all others alike."""

    knows: bool = True

    @property
    def name(self):
        return "memory" if self.knows else "ignorance"

    def attack_limit(self, X, y):
        return None

    def trained(self, X, y, seed):
        known = {row.tobytes(): label for row, label in zip(X, y, strict=True)}
        classes = int(np.max(y)) + 1
        noise = np.random.default_rng(seed)

        def predict_proba(rows):
            if not self.knows:
                return noise.dirichlet(np.ones(classes), size=len(rows))
            p = np.full((len(rows), classes), 1 / classes)
            for index, row in enumerate(rows):
                label = known.get(row.tobytes())
                if label is not None:
                    p[index] = np.eye(classes)[label]
            return p

        return predict_proba


# -- cells -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hits", [0, 7, 50, 100])
def test_one_repetition_has_clopper_and_pearsons_interval(hits):
    interval = cell(hits).over_rows
    exact = stats.binomtest(hits, 100).proportion_ci(0.95, method="exact")
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high), abs=1e-12)
    assert interval.value == hits / 100
    assert cell(hits).over_repetitions is None


def test_repetitions_have_students_interval_and_the_width_of_one_over_rows():
    repeated = cell(60, 70, 71)
    values = np.array([0.6, 0.7, 0.71])
    exact = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (repeated.over_repetitions.low, repeated.over_repetitions.high) == pytest.approx(exact)
    assert repeated.value == pytest.approx(values.mean())
    # 67 of 100, not 201 of 300, which would be narrower.
    naive = stats.binomtest(67, 100).proportion_ci(0.95, method="exact")
    assert (repeated.over_rows.low, repeated.over_rows.high) == pytest.approx(
        (naive.low, naive.high)
    )
    pooled = stats.binomtest(201, 300).proportion_ci(0.95, method="exact")
    assert repeated.over_rows.low < pooled.low < pooled.high < repeated.over_rows.high


def test_an_interval_over_repetitions_misses_as_often_as_it_says():
    rng = np.random.default_rng(5)
    missed = wide = 0
    for _ in range(2000):
        interval = cell(*rng.binomial(100, 0.6, size=4), confidence=0.9).over_repetitions
        missed += not interval.low <= 0.6 <= interval.high
        wide += not interval.low <= 0.68 <= interval.high
    # 3.9 standard deviations: a false alarm in ten thousand.
    assert abs(missed / 2000 - 0.1) < 0.026
    assert wide / 2000 > 0.5


def test_cells_of_different_sizes_are_refused():
    with pytest.raises(InvalidInput, match="shares"):
        Cell(shares=(Share(hits=1, trials=2), Share(hits=1, trials=3)))
    with pytest.raises(InvalidInput, match="shares"):
        Cell(shares=())


# -- logistic defences -----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_a_plain_model_minimises_the_penalised_loss(classes):
    X, y = overfitted(60, classes=classes, features=4)
    norm, penalty = float(np.linalg.norm(X, axis=1).max()), 0.02
    # The intercept is a constant feature of length 1/√(4 + 1) inside the unit ball.
    rows = np.column_stack([X / norm * math.sqrt(0.8), np.full(len(X), math.sqrt(0.2))])

    def naive(theta):
        if classes == 2:
            mean = np.mean(np.logaddexp(0, -np.where(y == 1, 1, -1) * (rows @ theta)))
        else:
            scores = rows @ theta.reshape(classes, -1).T
            mean = np.mean(np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(y)), y])
        return mean + penalty / 2 * theta @ theta

    size = rows.shape[1] * (1 if classes == 2 else classes)
    theta = optimize.minimize(naive, np.zeros(size), tol=1e-12).x
    if classes == 2:
        expected = 1 / (1 + np.exp(-rows @ theta))
        expected = np.column_stack([1 - expected, expected])
    else:
        expected = np.exp(rows @ theta.reshape(classes, -1).T)
        expected /= expected.sum(axis=1, keepdims=True)
    model = LogisticDefence(regularization=penalty, data_norm=norm).trained(X, y, 0)
    assert model(X) == pytest.approx(expected, abs=1e-4)
    other = LogisticDefence(regularization=2 * penalty, data_norm=norm).trained(X, y, 0)
    assert np.max(np.abs(other(X) - expected)) > 0.01


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_a_perturbed_model_is_that_of_the_estimator_and_warns_of_nothing(mechanism):
    X, y = overfitted(60, classes=2, features=4)
    defence = LogisticDefence(regularization=0.5, epsilon=2.0, mechanism=mechanism, data_norm=20.0)
    probabilities = defence.trained(X, y, 3)(X)
    estimator = PrivateLogisticRegression(
        2.0, 0, mechanism=mechanism, regularization=0.5, data_norm=20.0, random_state=3
    )
    with pytest.warns((SeededReleaseWarning, PrivacyLeakWarning)):
        estimator.fit(X, y)
    assert np.array_equal(probabilities, estimator.predict_proba(X))
    assert not np.array_equal(probabilities, defence.trained(X, y, 4)(X))


def test_what_no_attack_passes():
    X, y = overfitted(60, classes=2, features=4)

    def limit(**settings):
        settings = {"regularization": 0.5, "data_norm": 20.0} | settings
        return LogisticDefence(**settings).attack_limit(X, y)

    pure = 1 / (1 + math.exp(-2))
    assert limit(epsilon=2.0, mechanism="objective") == pytest.approx(pure, rel=1e-9)
    # The law of the noise is known, and spread over five dimensions.
    assert 0.5 < limit(epsilon=2.0, mechanism="output") < pure
    assert limit() is None
    assert limit(epsilon=2.0, data_norm="auto") == pytest.approx(pure, rel=1e-9)
    gaussian = {"noise": "gaussian", "delta": 1e-3}
    both = math.tanh(0.25) + 1e-3 / 2 * 2 / (1 + math.exp(0.5))
    most = limit(epsilon=0.5, mechanism="objective", **gaussian)
    # A row more or less, twice: more than (1 + advantage)/2.
    assert most == pytest.approx(0.5 + both, abs=1e-3)
    assert limit(epsilon=50.0, mechanism="objective", **gaussian) == 1.0


# -- the game --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [40, 41])
def test_half_of_each_class_are_members_and_every_row_as_often(rows):
    y = np.sort(np.random.default_rng(1).integers(3, size=rows))
    generators = map(np.random.default_rng, range(2000))
    partings = np.stack([compare.half_of_each_class(y, rng) for rng in generators])
    assert np.all(partings.sum(axis=1) == rows // 2)
    for label in range(3):
        inside = partings[:, y == label].sum(axis=1)
        assert np.all(np.abs(2 * inside - np.sum(y == label)) <= 1)
    # Five standard deviations; an odd class is a little less often inside.
    assert np.max(np.abs(partings.mean(axis=0) - 0.5)) < 5 * 0.5 / math.sqrt(2000) + 0.5 / 11


def evidence(confidence, references):
    n, m = len(confidence), len(references)
    return Evidence(
        confidence=confidence.astype(np.float32),
        labels=np.zeros(n, dtype=np.int32),
        references=references.astype(np.float32),
        inside=np.tile(np.arange(m)[:, None] % 2 == 0, (1, n)) ^ (np.arange(n) % 2 == 0),
        population=np.empty(0, dtype=np.float32),
        population_labels=np.empty(0, dtype=np.int32),
        population_references=np.empty((m, 0), dtype=np.float32),
        views=np.empty((n, 0), dtype=np.float32),
        reference_views=np.empty((0, n, 0), dtype=np.float32),
    )


def test_attack_and_threshold_are_judged_on_rows_that_did_not_choose_them():
    rng = np.random.default_rng(2)
    right, flattered = [], []
    for seed in range(40):
        truth = rng.permutation(np.arange(60) % 2 == 0)
        held = evidence(rng.standard_normal(60), rng.standard_normal((4, 60)))
        guesses, names = strongest_attack(held, truth, seed)
        right.append(np.mean(guesses == truth))
        assert len(names) == 5
        scores = np.sort(held.confidence)
        flattered.append(max(np.mean((held.confidence >= cut) == truth) for cut in scores))
    error = np.std(right) / math.sqrt(40)
    # Guessing, to four standard errors; chosen on the same rows it would look better by far.
    assert abs(np.mean(right) - 0.5) < 4 * error
    assert np.mean(flattered) > 0.5 + 5 * error


def test_an_attack_that_distinguishes_them_is_chosen():
    rng = np.random.default_rng(3)
    truth = np.arange(200) % 2 == 0
    held = evidence(truth * 2.0 + rng.standard_normal(200), rng.standard_normal((4, 200)))
    guesses, _ = strongest_attack(held, truth, 0)
    assert np.mean(guesses == truth) == pytest.approx(stats.norm.cdf(1), abs=0.08)


def test_memory_is_attacked_and_ignorance_is_not():
    X, y = overfitted(300)
    comparison = compare_defences(X, y, defences=[Memory(), Memory(knows=False)], references=4)
    exposed, safe = comparison["memory"], comparison["ignorance"]
    assert exposed.attack.value == exposed.train.value == 1.0
    assert 0.2 < exposed.test.value < 0.5
    assert safe.attack.over_rows.low < 0.5 < safe.attack.over_rows.high < 0.6
    assert comparison.without is exposed
    assert (comparison.members, comparison.others) == (150, 150)


def test_more_penalty_takes_the_gap_from_the_loss_threshold_but_not_from_references():
    X, y = overfitted(300, seed=1, classes=5)
    norm = float(np.linalg.norm(X, axis=1).max())
    defences = [LogisticDefence(regularization=value, data_norm=norm) for value in (1e-6, 1e-1)]
    free, held = compare_defences(X, y, defences=defences, references=0, random_state=1).rows
    assert free.train.value == 1.0
    assert free.gap > held.gap + 0.2
    assert held.test.value > free.test.value - 0.05
    assert held.attack.over_rows.high < free.attack.over_rows.low
    # An exact minimiser moves with every row; who has models without it sees how.
    _, referenced = compare_defences(X, y, defences=defences, references=4, random_state=1).rows
    assert referenced.attack.over_rows.low > held.attack.over_rows.high
    assert (held.by, referenced.by) == ("loss", "lira-online")


def test_no_attack_beats_a_guarantee():
    X, y = overfitted(200, classes=2)
    norm = float(np.linalg.norm(X, axis=1).max())
    defences = [
        LogisticDefence(regularization=1e-3, epsilon=e, mechanism="output", data_norm=norm)
        for e in (0.1, 1.0, 1e6)
    ]
    comparison = compare_defences(X, y, defences=defences, references=4, repetitions=2)
    strict, loose, none = comparison.rows
    for row in comparison.rows:
        assert row.attack.over_rows.low <= row.limit
    assert strict.limit < 0.53
    assert strict.limit < loose.limit < none.limit == pytest.approx(1.0)
    # Where the guarantee is empty the attack does pass what the strict one allows.
    assert none.attack.over_rows.low > strict.limit


def test_neither_workers_nor_repetitions_change_a_figure():
    X, y = overfitted(80)
    defences = [LogisticDefence(regularization=1e-3, epsilon=20.0, data_norm=12.0)]
    settings = {"defences": defences, "references": 4}
    first = compare_defences(X, y, repetitions=2, **settings)
    with joblib.parallel_config("threading", n_jobs=2):
        again = compare_defences(X, y, repetitions=3, **settings)
    other = compare_defences(X, y, repetitions=2, random_state=1, **settings)
    for measure in ("train", "test", "attack"):
        single, two, three = (getattr(t.rows[0], measure).shares for t in (first, again, other))
        assert single == two[:2]
    assert single != three


def test_estimators_and_functions_go_by_name():
    X, y = overfitted(200, classes=2)
    comparison = compare_defences(
        X,
        y,
        defences={
            "tree": DecisionTreeClassifier(),
            "stump": DecisionTreeClassifier(max_depth=1),
            "function": lambda X, y, seed: GaussianNB().fit(X, y),
            "private": PrivateLogisticRegression(epsilon=1.0),
        },
        references=0,
    )
    tree, stump = comparison["tree"], comparison["stump"]
    assert tree.train.value == 1.0
    # It says "member" of every row that it gets right: right with (1 + error)/2.
    assert tree.attack.value == pytest.approx((2 - tree.test.value) / 2, abs=1e-9)
    assert stump.attack.value < tree.attack.value
    assert [row.limit for row in comparison.rows] == [None] * 4


# -- the default table -----------------------------------------------------------------------------


@pytest.fixture
def without_torch(monkeypatch):
    def missing(module, *, caller, extra):
        raise MissingExtra(f"{caller} needs {module}: pip install 'expost[{extra}]'.")

    monkeypatch.setattr(compare, "require", missing)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("classes", [2, 3])
def test_the_default_table_without_torch(classes):
    X, y = overfitted(60, classes=classes, features=3)
    labels = np.array(["no", "perhaps", "yes"])[y]
    comparison = compare_defences(X, labels, references=0, epsilons=(1.0,), regularizations=(0.1,))
    names = [row.name for row in comparison.rows]
    assert names == [
        "logistic regression, Λ = 1e-06",
        "logistic regression, Λ = 0.1",
        *(["output perturbation, ε = 1"] if classes == 2 else []),
        "objective perturbation, ε = 1",
    ]
    assert any("pip install 'expost[torch]'" in notice for notice in comparison.notices)
    assert any("data_norm was read" in notice for notice in comparison.notices)
    assert any("two classes" in notice for notice in comparison.notices) == (classes > 2)
    assert {row.by for row in comparison.rows} == {"loss"}
    given = compare_defences(
        X, labels, references=0, epsilons=(), regularizations=(), data_norm=30.0
    )
    assert not any("data_norm" in notice for notice in given.notices)


def table(**changes):
    row = DefenceRow(
        name="<script>",
        train=cell(90, 92),
        test=cell(80, 84),
        attack=cell(61, 65),
        limit=0.7,
        by="loss",
    )
    free = DefenceRow(
        name="none",
        train=cell(100, 99),
        test=cell(70, 84),
        attack=cell(91, 85),
        limit=None,
        by="rmia",
    )
    settings = {"rows": (free, row), "members": 100, "others": 100, "references": 16}
    return DefenceTable(**(settings | {"confidence": 0.95, "notices": ("a & b",)} | changes))


def test_the_text_shows_every_figure():
    lines = str(table()).splitlines()
    assert "99.5 (94.5 … 100.0) ±6.4" in lines[3]
    assert lines[4].endswith(" 70.0")
    assert Audience.NEEDS_REVIEW.line in lines[-1]


def test_printed_intervals_hold_the_share_and_a_limit_is_rounded_up():
    rng = np.random.default_rng(3)
    for _ in range(200):
        accuracy, limit = cell(int(rng.integers(1, 99))), float(rng.random())
        low, high = (float(part) for part in str(accuracy).split("(")[1].strip(")").split(" … "))
        (share,) = accuracy.shares
        assert low <= 100 * share.low <= 100 * share.high <= high
        row = DefenceRow(
            name="", train=accuracy, test=accuracy, attack=accuracy, limit=limit, by="loss"
        )
        assert 0 <= float(row.limit_in_words) - 100 * limit < 0.1 + 1e-9


def test_attacks_are_drawn():
    comparison = table()
    drawn = next(
        line
        for line in comparison.plot().ax_.lines
        if line.get_label().startswith("of the strongest")
    )
    np.testing.assert_array_equal(drawn.get_xdata(), [row.attack.value for row in comparison.rows])


def test_html_is_escaped():
    page = table()._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a &amp; b" in page


def test_as_data(tmp_path):
    comparison = table()
    value = json.loads(comparison.to_json())
    assert value["audience"] == "needs-review"
    assert value["defences"][0]["attack"]["repetitions"] == [0.91, 0.85]
    assert value["defences"][0]["attack_limit"] is None
    assert value["defences"][1]["attack_limit"] == 0.7
    path = comparison.to_json(tmp_path / "defences.json")
    assert path.name == "defences.CURATOR-ONLY.json"
    assert json.loads(path.read_text()) == value
    frame = comparison.to_frame()
    assert list(frame["defence"]) == ["none", "<script>"]
    assert frame["attack"].tolist() == [0.88, 0.63]
    assert frame["attack_over_rows_low"][0] == comparison.without.attack.over_rows.low
    assert math.isnan(frame["attack_limit"][0])
    assert comparison.to_parquet(tmp_path / "d.parquet").exists()
    assert comparison["none"].gap == pytest.approx(0.225)


# -- what is refused -------------------------------------------------------------------------------

X40, Y40 = overfitted(40)


@pytest.mark.parametrize(
    ("X", "y", "settings", "message"),
    [
        (X40[:30], Y40[:30], {}, "at least 40"),
        (X40, np.zeros(40), {}, "two classes"),
        (X40, np.append(np.zeros(39), 1), {}, "two rows each"),
        (np.full((40, 2), np.nan), Y40, {}, "NaN"),
        (X40, Y40, {"references": 1}, "references=1"),
        (X40, Y40, {"repetitions": 0}, "repetitions=0"),
        (X40, Y40, {"confidence": math.nan}, "confidence=nan"),
        (X40, Y40, {"random_state": -1}, "random_state=-1"),
        (X40, Y40, {"defences": []}, "defences"),
        (X40, Y40, {"defences": [Memory(), Memory()]}, "1 names"),
        (X40, Y40, {"defences": {"trees": 5}}, r"defences\['trees'\]: is a int"),
        (X40, Y40, {"reference": X40}, "a pair"),
        (X40, Y40, {"reference": (X40, Y40 + 7)}, "classes of y"),
        (X40, Y40, {"regularizations": (-1.0,)}, "regularization=-1.0"),
        (X40, Y40, {"epsilons": (math.nan,)}, "epsilon=nan"),
        (X40, Y40, {"epsilons": 5}, "epsilons"),
    ],
)
@pytest.mark.usefixtures("without_torch")
def test_refusals(X, y, settings, message):
    with pytest.raises(InvalidInput, match=message):
        compare_defences(X, y, **{"references": 0} | settings)


def test_a_class_that_a_half_may_miss_is_refused():
    y = np.concatenate([np.zeros(20), np.ones(18), [2, 2]]).astype(int)
    with pytest.raises(InvalidInput, match="1 of 3 classes"):
        compare_defences(X40, y, defences=[Memory()], references=16)
    comparison = compare_defences(X40, y, defences=[Memory()], references=0)
    assert comparison.rows[0].train.value == 1.0


# -- the page --------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "defences.md"


def test_the_page_runs():
    (block,) = re.findall(r"^```pycon\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(block, {}, "page", str(PAGE), 0)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize().failed == 0
    assert runner.summarize().attempted >= 6


def test_the_table_of_the_page_is_that_of_the_evidence():
    recorded = json.loads((PAGE.parents[1] / "evidence" / "defences.json").read_text())["figures"]

    def shown(figure):
        repeated = figure["over_repetitions"]
        value = figure["value"]
        width = max(repeated["high"] - value, value - repeated["low"])
        return f"{100 * value:.1f} ± {100 * width:.1f}"

    lines = PAGE.read_text().splitlines()
    pairs = zip(recorded["0 references"], recorded["8 references"], strict=True)
    for weak, strong in pairs:
        line = next(row for row in lines if row.startswith(f"| {weak['defence']} |"))
        cells = [part.strip() for part in line.split("|")[2:6]]
        assert cells == [
            shown(measure)
            for measure in (weak["train"], weak["test"], weak["attack"], strong["attack"])
        ]
