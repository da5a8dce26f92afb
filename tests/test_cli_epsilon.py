"""``expost epsilon`` as a new user meets it: the answer, the page, mistakes, and what to type next."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import expost
from expost.data import MISSING
from expost.epsilon.limit import PosteriorLimit
from expost.files import atomic
from expost.jobs import epsilon as epsilon_job
from expost.jobs.requests import EpsilonRequest
from expost.mechanisms import ObjectivePerturbation
from expost.release import Release
from expost.report import Origin, parse_json, render_html
from program import (
    PROGRAM,
    Ran,
    finished,
    imported,
    mode,
    naive_features,
    names,
    page_in,
    people,
    text,
)
from recorded_progress import RecordedProgress

RESULTS = {
    "encoding.CURATOR-ONLY.json",
    "epsilon.CURATOR-ONLY.json",
    "epsilon.CURATOR-ONLY.parquet",
    "report.CURATOR-ONLY.html",
    "summary.CURATOR-ONLY.json",
}
ROWS = 60


@pytest.fixture
def ask(program, people_csv, tmp_path):
    """Run ``expost epsilon`` on the people, with these options; the results go to tmp_path/out.

    With few models at few values of ε, for speed: the first test does it all.
    """

    def call(options: str = "", *more: object, data=people_csv, target="income", out="o") -> Ran:
        few = [] if "--models" in options else ["--models", "20", "--epsilons", "0.5,2,8"]
        where = ("--target", target, "--out", tmp_path / out)
        return program("epsilon", data, *where, *few, *options.split(), *more)

    return call


def answer_of(folder: Path) -> dict:
    return json.loads((folder / "epsilon.CURATOR-ONLY.json").read_text())


def page_of(folder: Path) -> str:
    return (folder / "report.CURATOR-ONLY.html").read_text()


def next_command(done: Ran) -> list[str]:
    """What to type next, as a shell would read it; the report stands last."""
    assert done.out.rstrip("\n").splitlines()[-1].startswith("Report: ")
    return shlex.split(next_line(done), comments=True)


def next_line(done: Ran) -> str:
    lines = done.out.splitlines()
    return lines[lines.index("Next") + 1]


def naive_choice(**options):
    """The same question in Python, on the features of the naive encoding."""
    X, y = naive_features(people())
    # Four columns of the table, whatever the number of features.
    options.setdefault("data_norm", 1.0)
    options.setdefault("intercept_scaling", 1 / np.sqrt(5))
    return expost.choose_epsilon(
        X, np.where(y > 0, ">50K", "<=50K"), classes=("<=50K", ">50K"), **options
    )


def assert_same(result: dict, choice) -> None:
    assert result["verdict"] == choice.verdict
    for name in ("recommended", "low", "high", "ceiling"):
        assert result[name] == pytest.approx(getattr(choice, name), rel=1e-6), name
    for name, value in (
        ("epsilons", choice.epsilons),
        ("posterior", choice.posterior),
    ):
        np.testing.assert_allclose(result[name], value, rtol=1e-6, err_msg=name)
    critical = result["table"]["critical_epsilon"]
    np.testing.assert_allclose(critical, choice.critical_epsilon, rtol=1e-6)
    assert (result["utility"] is None) == (choice.utility is None)
    if choice.utility is not None:
        for name, curve in choice.utility.curves.items():
            # One row of a fold may fall on the other side of 0.
            np.testing.assert_allclose(result["utility"][name]["mean"], curve.mean, atol=0.02)


# The main job ----------------------------------------------------------------------------------


def test_the_answer_is_that_of_python(people_csv, tmp_path):
    out = tmp_path / "new" / "choice"
    arguments = ["epsilon", str(people_csv), "--target", "income", "--id", "number", "--seed", "3"]
    arguments += ["--max-posterior", "0.7", "--measure", "auc"]
    command = [sys.executable, "-X", "importtime", str(PROGRAM), *arguments, "--out", str(out)]
    done = finished(command, env={"FORCE_COLOR": "1"})
    assert done.code == 0, done.err
    assert {line.partition(":")[0] for line in done.err.splitlines()} == {"import time"}
    assert "\x1b" not in done.out
    assert not imported(done) & {"matplotlib.pyplot", "sklearn.datasets", "polars"}
    assert names(out) == RESULTS
    assert {mode(path) for path in out.iterdir()} == {0o600}

    answer = answer_of(out)
    choice = naive_choice(max_posterior=0.7, measure="auc", random_state=3)
    assert_same(answer, choice)
    # Power: another seed, another limit.
    other = naive_choice(max_posterior=0.65, measure="auc", random_state=4)
    scores = other.utility.curves["log_loss"]
    assert not np.allclose(answer["utility"]["log_loss"]["mean"][0], scores.mean[0])
    with pytest.raises(AssertionError):
        assert_same(answer, other)

    # Every row's figure is keyed by its id, in the order of the file.
    table = pq.read_table(out / "epsilon.CURATOR-ONLY.parquet")
    assert table["id"].to_pylist() == [line[0] for line in people()[1:]]
    np.testing.assert_allclose(table["critical_epsilon"].to_numpy(), choice.critical_epsilon, 1e-6)

    # What a person reads first, where the page is, and what to type next.
    typed = next_command(done)[next_command(done).index("--epsilon") + 1]
    page, kept = page_of(out), page_in(out)
    (document,) = kept.documents
    assert document.facts["recommended"] == float(typed)
    assert document.verdict.text in done.out
    assert done.out.index(document.verdict.text) < done.out.index("Files")
    origins = {setting.name: (setting.value, setting.origin.value) for setting in kept.settings}
    assert f"Report: {(out / 'report.CURATOR-ONLY.html').resolve()}" in done.out
    for name, value, origin in (
        ("target", "income", "given"),
        ("classes", "<=50K, >50K", "read from the data"),
        ("measure", "auc", "given"),
        ("max_posterior", "0.7", "given"),
        ("quantile", "0.95", "default"),
        ("tolerance", "0.1", "default"),
        ("share of rows past the transition", "0.5", "default"),
        ("values of epsilon", "a grid", "default"),
        ("folds", "5", "default"),
        ("seed", "3", "given"),
        ("missing cells", ", ".join(map(repr, MISSING)), "default"),
    ):
        assert origins[name] == (value, origin), name
        assert name in page
    assert "not private: the mean and scale of 'age'" in done.out


EVERY_OPTION = {
    "--mechanism": ("mechanism", "output", "output"),
    "--noise": ("noise", "gaussian", "gaussian"),
    "--delta": ("delta", "1e-05", 1e-5),
    "--loss": ("loss", "huber-hinge", "huber-hinge"),
    "--regularization": ("regularization", "0.3", 0.3),
    "--epsilons": ("epsilons", "0.5,2,40", (0.5, 2.0, 40.0)),
    "--models": ("models", "12", 12),
    "--tolerance": ("tolerance", "0.05", 0.05),
    "--rows": ("rows", "0.25", 0.25),
    "--max-posterior": ("max_posterior", "0.6", 0.6),
    "--prior": ("prior", "0.2", 0.2),
    "--quantile": ("quantile", "0.9", 0.9),
    "--share": ("share", "0.5", 0.5),
    "--measure": ("measure", "accuracy", "accuracy"),
    "--folds": ("folds", "3", 3),
    "--seed": ("random_state", "11", 11),
    "--data-norm": ("data_norm", "9", 9.0),
    "--classes": ("classes", "<=50K,>50K", ("<=50K", ">50K")),
}


def test_every_option_reaches_the_choice(ask, tmp_path):
    arguments = " ".join(f"{option} {text}" for option, (_, text, _) in EVERY_OPTION.items())
    done = ask(f"{arguments} --id number")
    assert done.code in (0, 3), done.err
    # So asked, Python gives the same answer: no option was lost.
    options = {name: value for name, _, value in EVERY_OPTION.values() if name != "classes"}
    assert_same(answer_of(tmp_path / "o"), naive_choice(**options))
    # Every option matters: left out, the answer is another one.
    for name in ("delta", "loss", "max_posterior", "prior", "tolerance", "regularization"):
        arguments = [f"{o} {text}" for o, (item, text, _) in EVERY_OPTION.items() if item != name]
        assert ask(f"{' '.join(arguments)} --id number", out=name).code in (0, 3)
        assert answer_of(tmp_path / name) != answer_of(tmp_path / "o"), name


def test_nothing_is_released_and_no_model_is_drawn_from_the_system(ask, tmp_path, monkeypatch):
    def release(*_, **__):
        raise AssertionError("a model was released")

    monkeypatch.setattr(ObjectivePerturbation, "release", release)
    monkeypatch.setattr(Release, "save", release)
    done = ask("--id number --seed 1")
    assert done.code == 0, done.err
    assert names(tmp_path / "o") == RESULTS
    assert b"theta" not in b"".join(path.read_bytes() for path in (tmp_path / "o").iterdir())


# What to type next -----------------------------------------------------------------------------


def test_the_next_command_runs_and_releases_what_was_recommended(ask, program, tmp_path):
    done = ask("--id number --seed 5 --folds 0 --noise gaussian --delta 1e-6")
    assert done.code == 0, done.err
    command = next_command(done)
    assert command[:2] == ["expost", "profile"]
    # The seed was for the simulation: a seeded release is not private.
    assert "--seed" not in command
    # The rule gives every ε its regularization: that of this one is on the page.
    assert "--regularization" not in command
    settings = {item.name: item for item in page_in(tmp_path / "o").settings}
    shown = settings["regularization"]
    assert program(*command[1:]).code == 0
    model = json.loads((tmp_path / "o" / "profile" / "model.json").read_text())
    answer = answer_of(tmp_path / "o")
    epsilon = model["mechanism"]["epsilon"]
    assert 0.99 * answer["recommended"] < epsilon <= answer["recommended"]
    assert (model["mechanism"]["noise"], model["mechanism"]["delta"]) == ("gaussian", 1e-6)
    assert not model["seeded"]
    assert shown.value.startswith(f"{model['regularization']:.6g},")
    assert shown.origin is Origin.RULE
    # At that ε the posterior is within the limit, by the model's own constants.
    mechanism = Release.load(tmp_path / "o" / "profile" / "model.json").mechanism
    assert PosteriorLimit().of_a_row(mechanism) <= 0.75


def test_a_shell_reads_the_next_command_as_it_is_meant(ask, tmp_path):
    """Names with spaces, quotes and signs go through a real shell, and every option comes back."""
    table = [[*line[:-1], "x;y", line[-1]] for line in people()]
    table[0] = ["the number", "age", "city $HOME", "smo'ker", "hours", "junk & co", "in come"]
    data = tmp_path / "my 'data' $(date).csv"
    data.write_text(text(table).replace("?", "-"))
    words = ["--id", "the number", "--drop", "junk & co", "--drop", "smo'ker", "--missing", "-"]
    words += ["--missing", "", "--classes", ">50K,<=50K", "--data-norm", "20", "--loss", "logistic"]
    done = ask("--folds 0", *words, data=data, target="in come")
    assert done.code == 0, done.err
    line = next_line(done)
    shown = subprocess.run(
        ["sh", "-c", "printf '%s\\n' " + line], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert shown == next_command(done)
    pairs = list(zip(shown[3::2], shown[4::2], strict=True))
    assert shown[:3] == ["expost", "profile", str(data)]
    assert [value for name, value in pairs if name == "--drop"] == ["junk & co", "smo'ker"]
    assert [value for name, value in pairs if name == "--missing"] == ["-", ""]
    assert {name: value for name, value in pairs if name not in ("--drop", "--missing")} == {
        "--target": "in come",
        "--id": "the number",
        "--data-norm": "20.0",
        "--classes": ">50K,<=50K",
        "--loss": "logistic",
        "--epsilon": re.search(r"^ε = (\S+) is ", done.out, re.MULTILINE)[1],
        "--out": str(tmp_path / "o" / "profile"),
    }
    # The page shows the same command, escaped.
    assert "my &#39;" in page_of(tmp_path / "o")


def test_the_next_command_with_an_encoding_and_a_regression(ask, program, tmp_path):
    first = ask("--loss squared --label-range 0,90 --id number --folds 0", target="age")
    assert first.code == 0, first.err
    whole = tmp_path / "o" / "encoding.CURATOR-ONLY.json"
    arguments = "--loss squared --label-range 0,90 --id number --folds 0 --encoding"
    second = ask(arguments, whole, target="age", out="p")
    assert second.code == 0, second.err
    command = next_command(second)
    assert command[command.index("--encoding") + 1] == str(whole)
    assert program(*command[1:]).code == 0
    for name in ("low", "high", "table"):
        assert answer_of(tmp_path / "p")[name] == answer_of(tmp_path / "o")[name]


def test_without_an_answer_there_is_no_next_command_and_another_exit_code(ask, tmp_path):
    done = ask("--id number --max-posterior 0.5001 --seed 1")
    assert done.code == 3, done.err
    (document,) = page_in(tmp_path / "o").documents
    assert document.verdict.text in done.out.splitlines()[:5]
    assert document.verdict.text in page_of(tmp_path / "o")
    assert "Next" not in done.out
    assert document.steps == ()
    answer = answer_of(tmp_path / "o")
    assert (answer["verdict"], answer["recommended"]) == ("none", None)
    # Labels that the columns know nothing of.
    noise = tmp_path / "noise.csv"
    rng = np.random.default_rng(0)
    lines = [f"{a},{b},{c}" for a, b, c in zip(*rng.integers(2, size=(3, 200)), strict=True)]
    noise.write_text("a,b,income\n" + "\n".join(lines) + "\n")
    useless = ask("--seed 1", data=noise, out="p")
    assert useless.code == 3
    assert answer_of(tmp_path / "p")["verdict"] == "useless"
    (document,) = page_in(tmp_path / "p").documents
    assert document.verdict.text in useless.out.splitlines()[:5]


# Machines --------------------------------------------------------------------------------------


def test_it_prints_json(ask, tmp_path):
    done = ask("--json-curator --id number --seed 1")
    assert (done.code, done.err) == (0, "")
    content = json.loads(done.out, parse_constant=pytest.fail)
    assert set(content) == {"files", "command", "summary", "n"}
    assert content["n"] == ROWS
    assert {Path(path).name for path in content["files"].values()} == RESULTS
    assert content["command"][:2] == ["expost", "profile"]
    answer = answer_of(tmp_path / "o")
    assert content["summary"]["audience"] == answer["audience"] == "curator-only"
    # What is printed is what is kept, and what the page was made from.
    kept = (tmp_path / "o" / "summary.CURATOR-ONLY.json").read_text()
    assert json.loads(kept) == content["summary"]
    assert render_html(parse_json(kept)) == page_of(tmp_path / "o")
    (document,) = parse_json(kept).documents
    assert document.steps[0].text == shlex.join(content["command"])
    assert 0 <= answer["recommended"] - document.facts["recommended"] < 0.01 * answer["recommended"]
    assert document.facts["verdict"] == answer["verdict"]
    none = json.loads(ask("--json-curator --max-posterior 0.5001", out="p").out)
    assert none["command"] is None
    (document,) = page_in(tmp_path / "p").documents
    assert document.facts["recommended"] is None


def test_a_job_in_python_takes_a_frame_and_has_no_command(tmp_path):
    columns = {column[0]: list(column[1:]) for column in zip(*people(), strict=True)}
    recorded = RecordedProgress()
    job = EpsilonRequest(
        source=columns, target="income", out=tmp_path / "o", name="frame", folds=0, drop=("number",)
    )
    outcome = epsilon_job.run(job, recorded)
    assert len(recorded.phases) == epsilon_job.PHASES
    assert outcome.command is None
    assert outcome.choice.recommended is not None
    assert all(path.exists() for path in outcome.files.values())


# What leaves the building ----------------------------------------------------------------------


def test_no_cell_and_no_key_is_on_the_page_or_the_screen(ask, tmp_path):
    # Seven digits of another number are those of a cell by chance, once in some seeds.
    rng = np.random.default_rng(9)
    wild = rng.integers(10**8, 10**9, size=(ROWS, 2))
    lines = [
        f"key-{number:x},{row[0] / 1e7},{row[1] / 1e6},{'yes' if number % 3 else 'no'}"
        for number, row in zip(rng.integers(2**40, size=ROWS), wild, strict=True)
    ]
    data = tmp_path / "wild.csv"
    data.write_text("key,a,b,income\n" + "\n".join(lines) + "\n")
    done = ask("--id key --seed 1", data=data)
    spoken = ask("--id key --seed 1 --json-curator", data=data, out="p")
    assert done.code == spoken.code == 3, done.err
    shown = done.out + spoken.out + page_of(tmp_path / "o")
    bare = shown.replace(".", "").replace(",", "")
    canaries = {str(value)[:7] for value in wild.ravel()}
    assert not [canary for canary in canaries if canary in bare]
    assert "key-" not in shown
    # The search would find one, and the table for the curator has the keys.
    assert [canary for canary in canaries if canary in bare + lines[0].replace(".", "")]
    assert pq.read_table(tmp_path / "o" / "epsilon.CURATOR-ONLY.parquet")["id"][0].as_py() == lines[0].split(",")[0]  # fmt: skip


# The output folder -----------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [0, 6, 12])
def test_a_failure_at_any_file_leaves_none(ask, tmp_path, monkeypatch, failing):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "thesis.txt").write_text("mine")
    synced, sync = [], atomic.os.fsync

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) > failing:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", full)
    done = ask("--id number --folds 0 --force")
    assert (done.code, done.out) == (2, "")
    assert "No space left on device" in done.message
    assert len(synced) > failing
    assert names(tmp_path / "o") == {"thesis.txt"}


def test_one_folder_holds_one_run(ask, program, people_csv, tmp_path):
    out = tmp_path / "o"
    profile = ("profile", people_csv, "--target", "income", "--id", "number", "--out", out)
    assert program(*profile).code == 0
    model = (out / "model.json").read_bytes()
    # A choice of ε takes the place of a profile, and leaves the model, which has cost something.
    assert ask("--id number --folds 0 --force").code == 0
    assert names(out) == RESULTS | {"model.json", "ledger-path.CURATOR-ONLY.json"}
    assert (out / "model.json").read_bytes() == model
    # And a profile takes the place of a choice.
    assert program(*profile, "--force").code == 0
    assert names(out) == {
        "model.json",
        "ledger-path.CURATOR-ONLY.json",
        "encoding.CURATOR-ONLY.json",
        "profile.CURATOR-ONLY.json",
        "profile.CURATOR-ONLY.parquet",
        "report.CURATOR-ONLY.html",
        "summary.CURATOR-ONLY.json",
    }


def test_the_encoding_that_was_given_is_never_removed(ask, tmp_path):
    assert ask("--id number --folds 0").code == 0
    given = tmp_path / "o" / "encoding.json"
    (tmp_path / "o" / "encoding.CURATOR-ONLY.json").rename(given)
    before = given.read_bytes()
    done = ask("--id number --folds 0 --force --encoding", given)
    assert (done.code, done.out) == (2, "")
    assert "is read by this command" in done.message
    assert given.read_bytes() == before


def test_a_picture_is_written_when_it_is_asked_for(ask, tmp_path):
    done = ask("--picture --json-curator")
    picture = tmp_path / "o" / "transition.CURATOR-ONLY.png"
    assert json.loads(done.out)["files"]["picture"] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert mode(picture) == 0o600
    assert {*RESULTS, picture.name} == set(names(picture.parent))
