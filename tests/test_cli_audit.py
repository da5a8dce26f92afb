"""``expost audit`` as a new user meets it: the answer, the page, mistakes, and going on."""

import json
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest

import expost
from expost.errors import InvalidInput
from expost.files import atomic
from expost.jobs import audit as audit_job
from expost.jobs.audit_rows import named_estimator
from expost.jobs.requests import AuditRequest
from expost.report import parse_json
from program import (
    PROGRAM,
    Ran,
    finished,
    mode,
    naive_features,
    names,
    page_in,
    people,
    refused,
    text,
)
from recorded_progress import RecordedProgress

RESULTS = {
    "audit.CURATOR-ONLY.json",
    "audit.CURATOR-ONLY.parquet",
    "figures.CURATOR-ONLY.json",
    "report.CURATOR-ONLY.html",
    "report.CURATOR-ONLY.md",
    "roc.CURATOR-ONLY.png",
    "summary.CURATOR-ONLY.json",
}
TREE = "sklearn.tree.DecisionTreeClassifier"


def others(rows=60, seed=1):
    """People like the others, with other numbers."""
    table = people(rows, seed)
    return [table[0], *(["q" + line[0][1:], *line[1:]] for line in table[1:])]


class Undrawn:
    """A figure without matplotlib."""

    def png(self):
        return b"\x89PNG"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Without drawing, for speed: the first test draws, in a process of its own."""
    monkeypatch.setattr(audit_job, "plot", lambda result, kind: Undrawn())


@pytest.fixture
def others_csv(tmp_path):
    path = tmp_path / "others.csv"
    path.write_text(text(others()))
    return path


@pytest.fixture
def ask(program, people_csv, tmp_path):
    """Run ``expost audit`` on the people, with few references; results go to tmp_path/o."""

    def call(options: str = "", *more: object, data=people_csv, out="o", model=TREE) -> Ran:
        few = [] if "--references" in options else ["--references", "4"]
        what = [] if model is None else ["--estimator", model]
        where = (data, "--target", "income", "--out", tmp_path / out)
        return program("audit", *where, *what, *few, *options.split(), *more)

    return call


def result_of(folder) -> dict:
    return json.loads((folder / "audit.CURATOR-ONLY.json").read_text())


def page_of(folder) -> str:
    return (folder / "report.CURATOR-ONLY.html").read_text()


def labels() -> np.ndarray:
    return np.array([line[-1] for line in people()[1:]])


# The main job ----------------------------------------------------------------------------------


def test_the_answer_is_that_of_python(people_csv, tmp_path):
    out = tmp_path / "new" / "audit"
    command = ["audit", str(people_csv), "--target", "income", "--id", "number", "--seed", "3"]
    command += ["--estimator", f"{TREE}:max_depth=5", "--references", "6", "--group", "city"]
    done = finished([sys.executable, str(PROGRAM), *command, "--out", str(out)])
    assert (done.code, done.err) == (0, "")
    assert names(out) == RESULTS
    assert {mode(path) for path in out.iterdir()} == {0o600}

    X, _ = naive_features(people())
    tree = named_estimator(f"{TREE}:max_depth=5")
    cells = [line[2] for line in people()[1:]]
    groups = {"city": cells}
    audit = expost.audit(tree, X, labels(), references=6, groups=groups, random_state=3)
    answer = result_of(out)
    assert answer["rows"]["member"] == audit.truth.tolist()
    for name, scores in audit.scores.items():
        np.testing.assert_allclose(answer["rows"][f"score_{name}"], scores, rtol=1e-5, err_msg=name)
    for name, figure in audit.figures.items():
        assert answer["attacks"][name]["auc"]["value"] == pytest.approx(figure.auc.value)
    assert [figure["column"] for figure in answer["disparity"]] == ["class", "city"]
    # Power: another seed is another game.
    other = expost.audit(tree, X, labels(), references=6, random_state=4)
    assert other.truth.tolist() != answer["rows"]["member"]

    # Every row's figure is keyed by its id, in the order of the file.
    table = pq.read_table(out / "audit.CURATOR-ONLY.parquet")
    assert table["id"].to_pylist() == [line[0] for line in people()[1:]]
    np.testing.assert_allclose(table["row_auc"].to_numpy(), audit.row_auc.value)
    assert (out / "roc.CURATOR-ONLY.png").read_bytes().startswith(b"\x89PNG")

    # What a person reads.
    page, stored = page_of(out), page_in(out)
    settings = [(each.name, each.value, each.origin.value) for each in stored.settings]
    (members,) = (each for each in settings if each[0] == "members")
    assert ("half" in members[1], members[2]) == (True, "default")
    for name, value, origin in (
        ("estimator", f"{TREE}:max_depth=5", "given"),
        ("target", "income", "given"),
        ("groups", "city", "given"),
        ("references", "6", "given"),
        ("attacks", "all that are possible", "default"),
        ("delta", "1e-05", "default"),
        ("confidence", "0.95", "default"),
        ("seed", "3", "given"),
    ):
        assert (name, value, origin) in settings, name
        assert name in page
    assert "This is an attack, not a guarantee" in done.out
    assert f"Report: {(out / 'report.CURATOR-ONLY.html').resolve()}" in done.out
    assert audit.best in page
    # The figures without rows hold no key and no score.
    figures = (out / "figures.CURATOR-ONLY.json").read_text()
    assert "p003" not in figures
    assert "rows" not in json.loads(figures)
    assert json.loads(figures)["audience"] in ("needs-review", "curator-only")


def test_a_released_model_with_rows_it_was_not_trained_on(
    ask, program, people_csv, others_csv, tmp_path
):
    command = ("profile", people_csv, "--target", "income", "--id", "number", "--epsilon", "50")
    assert program(*command, "--out", tmp_path / "p").code == 0
    model = tmp_path / "p" / "model.json"
    before = model.read_bytes()
    done = ask("--id number --seed 2 --coins --model", model, "--holdout", others_csv, model=None)
    assert done.code == 0, done.err
    assert model.read_bytes() == before
    assert names(tmp_path / "o") == RESULTS | {"exposure.CURATOR-ONLY.png"}
    answer = result_of(tmp_path / "o")
    assert answer["rows"]["member"] == [True] * 60 + [False] * 60
    assert answer["rows"]["id"] == [line[0] for line in (*people()[1:], *others()[1:])]
    profile = pq.read_table(tmp_path / "p" / "profile.CURATOR-ONLY.parquet")
    np.testing.assert_allclose(answer["rows"]["loss"][:60], profile["loss"].to_numpy(), rtol=1e-6)
    assert answer["rows"]["loss"][60:] == [None] * 60
    assert "epsilon = 50" in answer["guarantee"]
    assert answer["lower_bounds"]
    page = page_of(tmp_path / "o")
    assert "exposures" in page_in(tmp_path / "o").get("audit").figures
    assert "stated to be chosen by fair coins" in page
    # The same in Python.
    again = expost.audit(
        model,
        naive_features(people())[0],
        labels(),
        naive_features(others(), like=people())[0],
        np.array([line[-1] for line in others()[1:]]),
        references=4,
        coins=True,
        random_state=2,
    )
    np.testing.assert_allclose(answer["rows"]["loss"][:60], again.exposures.loss, rtol=1e-6)
    np.testing.assert_allclose(
        answer["rows"]["score_lira-online"], again.scores["lira-online"], rtol=1e-3
    )


def test_an_estimator_with_a_holdout_is_trained_on_all_of_the_data(ask, others_csv, tmp_path):
    done = ask("--id number --seed 2 --group city --holdout", others_csv)
    assert done.code == 0, done.err
    answer = result_of(tmp_path / "o")
    assert answer["rows"]["member"] == [True] * 60 + [False] * 60
    (_, city) = answer["disparity"]
    assert sum(group["members"] for group in city["groups"]) == 60
    assert sum(group["non_members"] for group in city["groups"]) == 60
    # An unpruned tree knows its own rows by heart.
    assert answer["attacks"]["loss"]["auc"]["value"] > 0.6


def test_a_population_and_more_classes_than_two(program, tmp_path, others_csv):
    """Three classes, one of them called like a script."""
    name = "<script>alert(1)</script>"
    for path, seed in (("many.csv", 0), ("population.csv", 5)):
        table = people(60, seed)
        table[0][2:4] = [name, "class"]
        for row, line in enumerate(table[1:]):
            line[-1] = ("low", "high", name)[row % 3]
        (tmp_path / path).write_text(text(table))
    done = program(
        "audit", tmp_path / "many.csv", "--target", "income", "--drop", "number",
        "--population", tmp_path / "population.csv", "--group", name, "--group", "class", "--seed", "1",
        "--estimator", f"{TREE}:max_depth=4", "--references", "4", "--out", tmp_path / "o",
    )  # fmt: skip
    assert done.code == 0, done.err
    answer = result_of(tmp_path / "o")
    assert "population" in answer["attacks"]
    assert {group["label"] for group in answer["disparity"][0]["groups"]} == {"low", "high", name}
    # A column that is called class is not taken for the target.
    assert [figure["column"] for figure in answer["disparity"]] == ["class", name, "column class"]
    page = page_of(tmp_path / "o")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in (tmp_path / "o" / "report.CURATOR-ONLY.md").read_text().replace(
        "\\<script", ""
    )


def test_answers_that_were_computed_elsewhere(program, tmp_path):
    rng = np.random.default_rng(0)
    member = np.arange(80) < 40
    losses = rng.exponential(np.where(member, 0.3, 1.0))
    np.savez(tmp_path / "losses.npz", losses=losses, member=member)
    done = program(
        "audit", "--arrays", tmp_path / "losses.npz", "--out", tmp_path / "o", "--json-curator"
    )
    assert done.code == 0, done.err
    content = json.loads(done.out)
    page = parse_json(json.dumps(content["summary"]).encode())
    facts = page.get("audit").facts
    # Naively: of each pair, how often the member has the smaller loss.
    pairs = [(a < b) + 0.5 * (a == b) for a in losses[member] for b in losses[~member]]
    assert facts["auc"] == pytest.approx(np.mean(pairs), abs=1e-3)
    assert (facts["members"], facts["non_members"], facts["references"]) == (40, 40, 0)
    assert set(content["files"]) == {
        *("audit", "rows", "figures", "summary", "report", "text", "roc")
    }

    np.savez(tmp_path / "unstated.npz", losses=losses)
    bad = program("audit", "--arrays", tmp_path / "unstated.npz", "--out", tmp_path / "p")
    refused(bad, tmp_path / "p", "unstated.npz | does not state the members | 'member'")
    both = ("audit", "data.csv", "--arrays", tmp_path / "losses.npz", "--out", tmp_path / "p")
    refused(program(*both), tmp_path / "p", "DATA | DATA cannot be combined with --arrays")


EVERY_OPTION = {
    "--references": ("references", "5", 5),
    "--delta": ("delta", "1e-06", 1e-6),
    "--confidence": ("confidence", "0.9", 0.9),
    "--seed": ("random_state", "11", 11),
    "--workers": ("workers", "1", 1),
    "--attack": ("attacks", "lira-online", ("lira-online",)),
}


def test_every_option_reaches_the_audit(ask, tmp_path, monkeypatch):
    received = {}

    def listening(*arguments, **options):
        received.update(options)
        return expost.audit(*arguments, **options)

    monkeypatch.setattr(audit_job, "audit", listening)
    command = " ".join(f"{option} {text}" for option, (_, text, _) in EVERY_OPTION.items())
    done = ask(f"{command} --id number")
    assert done.code == 0, done.err
    for name, _, value in EVERY_OPTION.values():
        assert received[name] == value, name
    assert received["checkpoint"] == tmp_path / "o" / ".expost-run" / "references"
    assert received["ids"] == [line[0] for line in people()[1:]]
    assert [*result_of(tmp_path / "o")["attacks"]] == ["lira-online"]

    # A seed that was not given is drawn and reported.
    received.clear()
    assert ask("--references 2", out="p").code == 0
    assert f"{received['random_state']}, drawn" in page_of(tmp_path / "p")
    assert (received["workers"], received["attacks"], received["ids"]) == (None, None, None)


def test_no_cell_of_the_table_is_shown(program, tmp_path):
    """Ids and classes are; numbers and texts of rows are in no file and not on the screen."""
    rng = np.random.default_rng(3)
    lines = ["who,size,town,outcome"]
    cells = []
    for row in range(60):
        size, town = f"{rng.uniform(1e5, 9e5):.7f}", f"town-{rng.integers(10**9)}"
        cells += [size, town]
        lines.append(f"person-{row},{size},{town},{'yes' if row % 2 else 'no'}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    done = program(
        "audit", tmp_path / "t.csv", "--target", "outcome", "--id", "who", "--group", "size",
        "--estimator", f"{TREE}:max_depth=2", "--references", "3", "--out", tmp_path / "o",
    )  # fmt: skip
    assert done.code == 0, done.err
    written = done.out.encode() + b"".join(path.read_bytes() for path in (tmp_path / "o").iterdir())
    assert b"person-7" in written
    for cell in cells:
        # Edges of bins are rounded: a whole cell is not among them.
        assert cell.rstrip("0").encode() not in written


# Resuming --------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(ask, tmp_path, monkeypatch):
    """An audit that was interrupted when two of its four references were trained."""
    with monkeypatch.context() as patch:
        patch.setattr(audit_job, "page_of", _interrupt)
        done = ask("--seed 4 --references 4", out="p")
    assert done.code == 130
    kept = sorted((tmp_path / "p" / ".expost-run" / "references").glob("reference-*"))
    assert len(kept) == 4
    for file in kept[2:]:
        file.unlink()
    return tmp_path / "p"


def _interrupt(*arguments, **options):
    raise KeyboardInterrupt


def test_an_interrupted_run_is_resumed(ask, tmp_path, interrupted):
    whole = ask("--seed 4 --references 4")
    assert whole.code == 0, whole.err
    expected = result_of(tmp_path / "o")
    again = ask("--seed 4 --references 4", out="p")
    assert (again.code, again.out) == (2, "")
    assert "pass --resume to continue it" in again.message

    recorded = RecordedProgress()
    job = AuditRequest(
        out=interrupted,
        name="people.csv",
        source=tmp_path / "people.csv",
        target="income",
        estimator=TREE,
        references=4,
        seed=4,
        resume=True,
    )
    outcome = audit_job.run(job, recorded)
    assert outcome.audit.scores["lira-online"].tolist() == expected["rows"]["score_lira-online"]
    assert result_of(interrupted)["rows"] == expected["rows"]
    assert names(interrupted) == RESULTS
    assert len(recorded.phases) == audit_job.phases(job)
    # Two of the four were kept, and take no time.
    index = recorded.phases.index("training 4 reference models")
    assert recorded.passes == {index: [[2 * 60, 60, 60]]}
    # It is finished, which is no mistake.
    done = ask("--seed 4 --references 4 --resume", out="p")
    assert (done.code, done.out) == (0, "")
    assert "nothing to resume" in done.err


def test_another_run_is_not_resumed(ask, interrupted):
    other = ask("--seed 5 --references 4 --resume", out="p")
    assert (other.code, other.out) == (2, "")
    assert "differs in --seed" in other.message


def test_a_seed_that_was_drawn_is_that_of_the_resumed_run(ask, tmp_path, monkeypatch):
    seeds = []

    def listening(*arguments, **options):
        seeds.append(options["random_state"])
        return expost.audit(*arguments, **options)

    monkeypatch.setattr(audit_job, "audit", listening)
    with monkeypatch.context() as patch:
        patch.setattr(audit_job, "page_of", _interrupt)
        assert ask("--references 4").code == 130
    assert ask("--references 4 --resume").code == 0
    assert seeds[0] == seeds[1]
    assert ask("--references 4", out="p").code == 0
    assert seeds[2] != seeds[0]


# Mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("os.system", "is not a class"),
        ("os.path.join", "is not a class"),
        ("collections.OrderedDict", "has no fit"),
        ("sklearn.svm.SVC", "has no predict_proba | pass probability=True"),
        ("sklearn.linear_model.Ridge", "has no predict_proba"),
        ("nosuch.module.Model", "'nosuch.module' cannot be imported"),
        ("sklearn.tree.NoTree", "has no 'NoTree'"),
        ("LogisticRegression", "a class with its module"),
        ("sklearn.tree; import os", "a class with its module"),
        (f"{TREE}:max_depth", "param=value"),
        (f"{TREE}:**{{}}", "param=value"),
        (f"{TREE}:max_depth=3)+(4", "param=value"),
        (f"{TREE}:depth=3", "does not take these parameters"),
        (f"{TREE}:max_depth=open('x')", "'max_depth' is not a literal"),
    ],
)
def test_what_is_no_estimator_is_refused(model, words):
    with pytest.raises(InvalidInput) as caught:
        named_estimator(model)
    for word in ("--estimator", *words.split(" | ")):
        assert word in str(caught.value)


def test_parameters_are_literals_or_words():
    forest = named_estimator(
        "sklearn.ensemble.RandomForestClassifier:n_estimators=7,max_features=sqrt,max_depth=None"
    )
    assert (forest.n_estimators, forest.max_features, forest.max_depth) == (7, "sqrt", None)
    net = named_estimator("sklearn.neural_network.MLPClassifier:hidden_layer_sizes=(5, 3)")
    assert net.hidden_layer_sizes == (5, 3)
    with pytest.raises(InvalidInput, match="in quotes"):
        named_estimator("sklearn.linear_model.LogisticRegression:solver=newton-cg")


def test_options_that_do_not_go_together(ask, program, people_csv, others_csv, tmp_path):
    out = tmp_path / "o"
    refused(program("audit", "--estimator", TREE, "--out", out), out, "DATA | --target")
    refused(program("audit", "--query", "people", "--out", out), out, "name the database")
    refused(ask(model=None), out, "give exactly one")
    refused(ask("--arrays x.npz"), out, "--estimator, --arrays: give exactly one")
    refused(ask("--coins"), out, "--coins | --holdout")
    refused(ask("--holdout", people_csv), out, "rows are rows of DATA")
    refused(ask("--id number --holdout", people_csv), out, "60 of its ids")
    command = ("profile", people_csv, "--target", "income", "--out", tmp_path / "p")
    assert program(*command).code == 0
    model = tmp_path / "p" / "model.json"
    refused(ask("--model", model, model=None), out, "--holdout | was not trained on")
    both = ("--holdout", others_csv)
    refused(ask("--drop city --model", model, *both, model=None), out, "--drop | has its own")
    wrong = ("audit", people_csv, "--target", "city", "--model", model, *both, "--out", out)
    refused(program(*wrong), out, "the model predicts 'income'")
    # A cell of the holdout that is no number is not shown.
    table = people()
    table[9][1] = "kanarie"
    (tmp_path / "bad.csv").write_text(text(table))
    refused(ask("--holdout", tmp_path / "bad.csv"), out, "bad.csv")


def test_a_holdout_of_members_is_refused(ask, tmp_path):
    """A part of DATA, in another order and with other ids, would be an all-clear for any model."""
    header, *rows = people()
    rows.reverse()
    path, out = tmp_path / "part.csv", tmp_path / "o"
    path.write_text(text([header, *rows[:30], *others()[1:20]]))
    refused(ask("--holdout", path), out, "30 of its 49 rows are rows of DATA")
    renamed = [["r" + row[0][1:], *row[1:]] for row in rows[:30]]
    path.write_text(text([header, *renamed, *others()[1:20]]))
    refused(ask("--id number --holdout", path), out, "30 of its 49 rows are rows of DATA")
    # A few may be by chance, and are counted.
    path.write_text(text([header, *rows[:5], *others()[1:20]]))
    done = ask("--holdout", path)
    assert done.code == 0, done.err
    assert "5 of its 24 rows are identical to rows of DATA" in done.out


def test_rows_of_few_values_are_in_both_tables(ask, tmp_path):
    """Where rows repeat within DATA, those of others are among them by chance."""
    rng, tables = np.random.default_rng(5), {}
    for name in ("data", "others"):
        cells = rng.choice(["a", "b", "c"], (80, 2))
        tables[name] = tmp_path / f"{name}.csv"
        tables[name].write_text(text([["one", "income"], *cells.tolist()]))
    done = ask("--holdout", tables["others"], data=tables["data"])
    assert done.code == 0, done.err
    assert "80 of its 80 rows are identical to rows of DATA" in done.out
    # Less than half of DATA repeat, more than half of a few others by chance.
    for name, repeated, size in (("data", 36, 80), ("others", 11, 20)):
        cells = ["a", "b", "c"] * (repeated // 3) + ["a", "b"][: repeated % 3]
        cells += [f"{name} {row}" for row in range(size - repeated)]
        labels = [["yes", "no"][row % 2] for row in range(size)]
        tables[name].write_text(
            text([["one", "income"], *map(list, zip(cells, labels, strict=True))])
        )
    done = ask("--force --holdout", tables["others"], data=tables["data"])
    assert done.code == 0, done.err
    assert "11 of its 20 rows are identical to rows of DATA" in done.out


def test_nothing_is_left_of_a_run_that_cannot_be_written(ask, tmp_path, monkeypatch):
    written = atomic.write_with

    def full(path, *arguments, **options):
        if path.suffix == ".md":
            raise OSError(28, "No space left on device")
        return written(path, *arguments, **options)

    monkeypatch.setattr(atomic, "write_with", full)
    done = ask("--seed 1")
    assert (done.code, done.out) == (2, "")
    for words in ("out=", "No space left", "Progress was saved", "--resume"):
        assert words in done.message, words
    assert names(tmp_path / "o") == {".expost-run"}
    monkeypatch.undo()
    monkeypatch.setattr(audit_job, "plot", lambda result, kind: Undrawn())
    assert ask("--seed 1 --resume").code == 0
    assert names(tmp_path / "o") == RESULTS
    again = ask("--seed 1")
    assert (again.code, "is not empty" in again.message) == (2, True)
    # A file of another origin with the name of a result is not overwritten.
    foreign = tmp_path / "o" / "exposure.CURATOR-ONLY.png"
    foreign.write_bytes(b"old")
    done = ask("--seed 1 --force")
    assert (done.code, "that expost did not write" in done.message) == (2, True)
    assert foreign.read_bytes() == b"old"
    foreign.unlink()
    assert ask("--seed 1 --force").code == 0
    assert names(tmp_path / "o") == RESULTS


def test_the_rows_of_a_database_are_attacked_like_those_of_a_file(ask, people_csv, tmp_path):
    header, *lines = people()
    with closing(sqlite3.connect(tmp_path / "people.db")) as database, database:
        database.execute(f"CREATE TABLE people ({', '.join(f'[{name}]' for name in header)})")
        marks = ", ".join("?" * len(header))
        database.executemany(f"INSERT INTO people VALUES ({marks})", lines)
    key = header[0]
    command = [
        ask(f"--seed 3 --id {key}", *more, data=data, out=out)
        for data, more, out in [
            (people_csv, (), "file"),
            (f"sqlite:///{tmp_path / 'people.db'}", ("--query", "people"), "base"),
        ]
    ]
    assert [ran.code for ran in command] == [0, 0], command[1].err
    of_file, of_base = (
        pq.read_table(tmp_path / out / "audit.CURATOR-ONLY.parquet") for out in ("file", "base")
    )
    assert of_file.num_rows > 0
    assert of_file.column("id").to_pylist() == of_base.column("id").to_pylist()
