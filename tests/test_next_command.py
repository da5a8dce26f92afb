"""The next command on a page runs as it is shown, in the folder of the command before it."""

import json
import shlex

import pytest

from program import page_in, people, text

NOTES = "the notes"
TABLE = ("data/people.csv", "--target", "income", "--drop", NOTES)
KEYED = (*TABLE, "--id", "number")
FEATURES = {"age", "city", "smoker", "hours"}
AUDIT = ("--estimator", "sklearn.tree.DecisionTreeClassifier", "--references", 0)


@pytest.fixture
def steps(program, tmp_path, monkeypatch):
    """Run a command next to ``data/people.csv``; return the next commands on its page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for seed, (name, mark) in enumerate((("people", "p"), ("others", "q"))):
        table = [
            [mark + line[0][1:], *line[1:], f"note {index}", f"0.{3 + index % 4}"]
            for index, line in enumerate(people(seed=seed))
        ]
        table[0] = [*people()[0], NOTES, "weight"]
        (tmp_path / "data" / f"{name}.csv").write_text(text(table))

    def call(*arguments: object, out="runs/first") -> list[list[str]]:
        done = program(*arguments, "--out", out)
        assert done.code == 0, done.err
        return [shlex.split(step.text) for step in page_in(tmp_path / out).steps]

    return call


def test_a_model_is_published_from_its_folder(program, steps):
    (command,) = steps("profile", *KEYED, "--drop", "weight", "--mechanism", "objective")
    assert command == ["expost", "publish", "--model", "runs/first/model.json"]
    assert program(*command[1:], "--out", "published").code == 0


@pytest.mark.parametrize(
    ("first", "features"),
    [
        (("profile", *KEYED, "--epsilon", 8), {*FEATURES, "weight"}),
        (("profile", *TABLE, "--person", "number", "--epsilon", 8), {*FEATURES, "weight"}),
        (("audit", *KEYED, *AUDIT), {*FEATURES, "weight"}),
        (
            ("audit", *KEYED, *AUDIT, "--holdout", "data/others.csv", "--propensity", "weight"),
            FEATURES,
        ),
    ],
)
def test_an_epsilon_is_chosen_for_the_same_columns(program, steps, tmp_path, first, features):
    (command,) = steps(*first)
    assert command[:2] == ["expost", "epsilon"]
    few = ("--models", 20, "--epsilons", "0.5,2,8", "--folds", 0, "--out", "chosen")
    done = program(*command[1:], *few)
    assert done.code in (0, 3), done.err
    encoding = json.loads((tmp_path / "chosen" / "encoding.CURATOR-ONLY.json").read_text())
    assert set(encoding["columns"]) == features


def test_the_demo_has_no_table_to_choose_an_epsilon_for(steps):
    assert steps("demo", "--epsilon", 0.001) == []
