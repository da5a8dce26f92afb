"""The ledger as users of the program meet it: kept by every release, and read by ``expost ledger``."""

import json
import math
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import expost
from expost.files import atomic
from expost.files.directory import RUN
from expost.ledger import Ledger
from expost.risk import GaussianNoise
from program import finished, mode, names, people, refused, text
from settings import OUTPUT, OUTPUT_OPTIONS
from test_cli_publish import BUDGET, SPENT, made

LEDGER, IN_FOLDER = "people.ledger.CURATOR-ONLY.json", "ledger.CURATOR-ONLY.json"


@pytest.fixture
def ask(program, people_csv, tmp_path):
    """Run ``expost profile`` with pure noise on the people; the results go to tmp_path/out."""

    def call(options="", *more, out="o", data=people_csv):
        where = ("--target", "income", "--id", "number", "--out", tmp_path / out)
        given = options.split()
        fixed = () if "--model" in given else OUTPUT_OPTIONS
        return program("profile", data, *where, *fixed, *given, *more)

    return call


def entries(folder: Path) -> tuple:
    return Ledger.load(folder / LEDGER).entries


def printed(done) -> str:
    assert done.code == 0, done.err
    return " ".join(done.out.split())


def checksum(model: Path) -> str:
    return json.loads(model.read_text())["sha256"]


# Releasing ---------------------------------------------------------------------------------------


def test_every_release_is_listed(ask, tmp_path):
    first = printed(ask("--epsilon 0.5"))
    assert "releases, which together" not in first
    assert f"ledger {tmp_path / LEDGER}" in first
    (entry,) = entries(tmp_path)
    model = tmp_path / "o" / "model.json"
    assert (entry.release, entry.name, entry.epsilon) == (checksum(model), str(model), 0.5)
    assert mode(tmp_path / LEDGER) == 0o600
    # To draw until one likes it: the model that was written over stays spent.
    again = printed(ask("--epsilon 0.25 --force"))
    assert "2 releases" in again
    assert "ε = 0.75 " in again
    assert "other rows" not in again
    two = entries(tmp_path)
    assert two[0] == entry
    assert two[1].release == checksum(model)
    assert two[0].data == two[1].data
    page = (tmp_path / "o" / "report.CURATOR-ONLY.html").read_text()
    assert "has 2 releases" in page
    # No row is in it, but what a curator may see: its digest, and that of no other salt.
    assert not re.search("Oslo|Bergen|p0[0-9][0-9]", (tmp_path / LEDGER).read_text())


def test_one_ledger_for_several_folders(ask, tmp_path):
    shared = tmp_path / "people.json"
    printed(ask("--ledger", shared, out="a"))
    assert "has 2 releases" in printed(ask("--drop city --ledger", shared, out="b"))
    path = tmp_path / "people.CURATOR-ONLY.json"
    assert [entry.name for entry in Ledger.load(path).entries] == [
        str(tmp_path / name / "model.json") for name in "ab"
    ]
    assert IN_FOLDER not in names(tmp_path / "a") | names(tmp_path / "b")
    third = printed(ask("--ledger", path, out="c"))
    # Without a column the rows are not known to be the same people's; they count all the same.
    assert "1 of the 3 " in third
    assert "other rows" in third
    # A folder that has a ledger of its own keeps it whole.
    own = tmp_path / "d" / IN_FOLDER
    printed(ask("--ledger", own, out="d"))
    printed(ask("--force --ledger", path, out="d"))
    assert len(Ledger.load(path)) == 4
    assert [entry.release for entry in Ledger.load(own).entries][1] == checksum(
        tmp_path / "d" / "model.json"
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_text("{"), "is not a whole JSON file"),
        (lambda path: path.write_text(path.read_text().replace("0.5", "0.1")), "was edited"),
    ],
)
def test_nothing_is_released_past_a_damaged_ledger(ask, tmp_path, spoil, words):
    printed(ask("--epsilon 0.5"))
    ledger, model = tmp_path / LEDGER, tmp_path / "o" / "model.json"
    spoil(ledger)
    before = model.read_bytes(), ledger.read_bytes()
    done = ask("--force")
    assert (done.code, done.out) == (2, "")
    assert words in done.message
    assert "valid ledger" in done.message
    assert (model.read_bytes(), ledger.read_bytes()) == before
    refused(ask("--ledger", ledger, out="n"), tmp_path / "n", "restore it from a copy | --ledger")


def test_a_ledger_that_cannot_be_written_is_refused_before_any_work(ask, tmp_path, monkeypatch):
    refused(
        ask("--ledger", tmp_path / "no" / "x.json"), tmp_path / "o", "its folder does not exist"
    )
    (tmp_path / "shut").mkdir()
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, flags: Path(path).name != "shut" and real(path, flags)
    )
    done = ask("--ledger", tmp_path / "shut" / "x.json")
    refused(done, tmp_path / "o", "cannot be written to | nothing is released without a ledger")


def test_a_process_killed_once_it_has_listed_leaves_no_release(people_csv, tmp_path):
    """The only moment at which ledger and folder differ: listed, and not there to be seen."""
    out = tmp_path / "o"
    script = (
        "import os, signal\n"
        "from expost.cli import main\n"
        "from expost.jobs import ledger\n"
        "real = ledger.append\n"
        "def dying(*arguments):\n"
        "    real(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "ledger.append = dying\n"
        "main.main()\n"
    )
    command = ["profile", str(people_csv), "--target", "income", "--out", str(out)]
    done = finished([sys.executable, "-c", script, *command])
    assert done.code == -signal.SIGKILL, done.err
    assert not (out / "model.json").exists()
    assert len(entries(tmp_path)) == 1


def test_at_every_step_every_visible_model_is_listed(ask, tmp_path, monkeypatch):
    """Each file that is renamed, linked or removed along the way is a moment to look."""
    looked = []
    out, named = tmp_path / "o", tmp_path / "all.CURATOR-ONLY.json"

    def watch(real):
        def looking(*arguments, **options):
            real(*arguments, **options)
            if (out / "model.json").exists():
                model_checksum = checksum(out / "model.json")
                ledgers = [entries(tmp_path)]
                if named.exists():
                    ledgers.append(Ledger.load(named).entries)
                looked.append(
                    any(entry.release == model_checksum for each in ledgers for entry in each)
                )

        return looking

    printed(ask())
    for name in ("replace", "link", "fsync", "fchmod"):
        monkeypatch.setattr(atomic.os, name, watch(getattr(os, name)))
    printed(ask("--force"))
    printed(ask("--force --ledger", tmp_path / "all.json"))
    assert len(looked) > 10
    assert all(looked)


def test_a_failure_to_list_releases_nothing(ask, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("expost.jobs.ledger.append", full)
    refused(ask(), tmp_path / "o", "No space left on device | nothing was released")


# A model that exists -------------------------------------------------------------------------------


def test_profiling_a_listed_model(ask, tmp_path):
    printed(ask())
    model = tmp_path / "o" / "model.json"
    quiet = printed(ask("--model", model, out="p"))
    assert "ledger" not in quiet.lower()
    # The copy is no further release, and a ledger of it alone would not be whole.
    assert IN_FOLDER not in names(tmp_path / "p")
    assert len(entries(tmp_path)) == 1
    printed(ask("--force"))
    message = printed(ask("--model", model, out="q"))
    assert "2 releases" in message
    assert "ε = 2 " in message
    assert "was made from other rows" not in message
    assert len(entries(tmp_path)) == 2


def test_profiling_a_model_that_no_ledger_lists(ask, tmp_path):
    printed(ask())
    model, ledger = tmp_path / "o" / "model.json", tmp_path / LEDGER
    kept = model.read_bytes()
    printed(ask("--force"))
    model.write_bytes(kept)
    ledger.unlink()
    # An old folder has no ledger: it works as before, and is told so.
    message = printed(ask("--model", model, out="p"))
    assert "There is no ledger next to the model" in message
    assert f"--add {model}" in message
    printed(ask(out="other"))
    message = printed(ask("--model", model, out="q"))
    assert f"The model is not in {ledger}" in message
    assert "has 2 releases" in message
    refused(
        ask("--model", model, "--ledger", tmp_path / "none.json", out="r"),
        tmp_path / "r",
        "none.CURATOR-ONLY.json | does not exist (start it with: expost ledger",
    )
    ledger.write_text("{}")
    assert "The ledger is not valid" in printed(ask("--model", model, out="s"))


def test_rows_that_are_not_those_of_the_model_are_recognised(ask, tmp_path):
    """One cell of one row: too little for the noise to tell, but not for the digest."""
    table = people()
    printed(ask("--epsilon 0.01"))
    table[7][1] = str(int(table[7][1]) + 1)
    other = tmp_path / "other.csv"
    other.write_text(text(table))
    message = printed(ask("--model", tmp_path / "o" / "model.json", out="p", data=other))
    assert "the model was made from other rows" in message


# Publishing ----------------------------------------------------------------------------------------


@pytest.fixture
def publish(program, people_csv, tmp_path):
    model = made(
        people_csv, tmp_path, mechanism="objective", noise="gaussian", delta=1e-6,
        regularization="for-publishing", publishing=BUDGET,
    )  # fmt: skip

    def call(*more, out="p"):
        return program("publish", people_csv, "--model", model, "--out", tmp_path / out, *more)

    return call


def test_what_a_report_spends_is_listed_beside_its_model(publish, tmp_path):
    message = printed(publish())
    # A report from the model alone releases nothing more.
    assert "There is no ledger next to the model" in message
    assert not (tmp_path / LEDGER).exists()
    message = printed(publish(*SPENT, out="q"))
    assert "ε = 2, δ = 3 × 10⁻⁶" in message
    model, report = entries(tmp_path)
    assert model.release == checksum(tmp_path / "model.json")
    assert report.release == checksum(tmp_path / "q" / "report.json")
    assert (report.kind, report.epsilon) == ("report", 1.0)
    assert isinstance(report.guarantee, GaussianNoise)
    assert report.data == model.data
    assert IN_FOLDER not in names(tmp_path / "q")
    # Another one spends again; the first stays.
    assert "has 3 releases" in printed(publish(*SPENT, "--force", out="q"))
    assert entries(tmp_path)[:2] == (model, report)
    assert "has 3 releases" in printed(publish(out="r"))
    named = tmp_path / "all.CURATOR-ONLY.json"
    printed(publish(*SPENT, "--ledger", named, out="s"))
    assert [entry.kind for entry in Ledger.load(named).entries] == ["model", "report"]
    assert len(entries(tmp_path)) == 4


def test_a_report_that_cannot_be_listed_is_not_published(publish, tmp_path, monkeypatch):
    (tmp_path / LEDGER).write_text("{}")
    refused(publish(*SPENT), tmp_path / "p", "is not a whole ledger | nothing is released")
    (tmp_path / LEDGER).unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("expost.jobs.ledger.append", full)
    done = publish(*SPENT)
    assert (done.code, done.out) == (2, "")
    assert "nothing was published" in done.message
    assert "--resume" in done.message
    assert names(tmp_path / "p") == {RUN}
    assert not (tmp_path / LEDGER).exists()
    # What was drawn is listed and published, and nothing is drawn again.
    drawn = json.loads((tmp_path / "p" / RUN / "report.json").read_text())["value"]
    monkeypatch.undo()
    assert publish(*SPENT, "--resume").code == 0
    assert json.loads((tmp_path / "p" / "report.json").read_text()) == drawn
    assert len(entries(tmp_path)) == 2


# Reading it ----------------------------------------------------------------------------------------


@pytest.fixture
def ledger(program):
    def call(*arguments):
        return program("ledger", *arguments)

    return call


def saved(folder: Path, name="model.json", **options) -> Path:
    """A model that was made in Python, and that no ledger knows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(40, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    given = {**OUTPUT, "data_norm": 2.0, "classes": ("no", "yes"), **options}
    return expost.PrivateLogisticRegression(**given).fit(X, y).release_.save(folder / name)


GAUSSIAN = {"noise": "gaussian", "delta": 1e-6}


METHODS = {
    "sequential": "sequential (sum of ε)",
    "rdp-mironov": "Rényi divergences",
    "rdp-tight": "Rényi divergences, tighter conversion",
    "pld": "privacy-loss distribution",
}


def table(out: str) -> dict[str, float]:
    """{name: epsilon} of the methods of composition."""
    return {
        name: float(re.search(rf"^  {re.escape(title)} +([\d.]+) ", out, re.MULTILINE)[1])
        for name, title in METHODS.items()
    }


def test_all_releases_and_what_they_spend(ask, ledger, tmp_path):
    printed(ask("--epsilon 0.5"))
    printed(ask("--epsilon 0.25 --force"))
    done = ledger(tmp_path / "o")
    assert "2 releases of a data set" in printed(done)
    first, two = entries(tmp_path)
    for entry in (first, two):
        line = re.search(rf"^  {entry.made[:10]} .*{entry.release[:8]}.*$", done.out, re.MULTILINE)[
            0
        ]
        assert "model: output, laplace" in line
        assert f"  {entry.epsilon:g}  " in line
        # Of a long name the end is shown.
        assert line.endswith(str(tmp_path / "o" / "model.json")[-30:])
    assert "ε = 0.75, δ = 0, if a row is removed or added or replaced." in done.out
    assert "2 releases used constants of the data" in done.out
    result = table(done.out)
    expected = Ledger.load(tmp_path / LEDGER).composed(1e-5)
    assert set(result) == {row.name for row in expected.rows}
    for row in expected.rows:
        assert row.epsilon <= result[row.name] <= 1.01 * row.epsilon
    assert result["pld"] < result["rdp-tight"] < result["rdp-mironov"] < 0.75
    # A file of it and its folder say the same.
    assert ledger(tmp_path / LEDGER).out == done.out
    # For machines: neither the salt nor a digest of the rows is shown.
    value = json.loads(ledger(tmp_path / "o", "--json-curator", "--delta", "1e-7").out)
    counts = {"without_guarantee": 0, "seeded": 0, "unlisted": 0, "sets_of_rows": 1}
    assert counts.items() <= value.items()
    assert value["delta"] == value["together"]["delta"] == 1e-7
    assert [first["epsilon"] for first in value["releases"]] == [0.5, 0.25]
    assert {first["data"] for first in value["releases"]} == {"A"}
    assert [row["name"] for row in value["together"]["rows"]] == list(METHODS)
    assert Ledger.load(tmp_path / LEDGER).salt not in json.dumps(value)
    assert first.data not in json.dumps(value)


def test_gaussian_releases_compose_exactly(ledger, tmp_path):
    """Three of mu are one of sqrt(3)·mu: the closed form, to what is printed."""
    paths = [saved(tmp_path, f"{name}.json", **GAUSSIAN) for name in "abc"]
    done = ledger(*paths, "--delta", "1e-6")
    mu = expost.Release.load(paths[0]).mechanism.guarantee().mu
    whole = GaussianNoise(mu=math.sqrt(3) * mu)
    assert table(done.out)["pld"] == pytest.approx(whole.epsilon(1e-6), rel=1e-2)
    assert table(done.out)["sequential"] > 1.5 * whole.epsilon(1e-6)
    assert "who sees all 3 releases" in done.out
    assert done.out.count("not listed") == 3
    assert "3 releases in no ledger" in done.out


def test_the_same_release_counts_once(ledger, tmp_path):
    path = saved(tmp_path)
    (tmp_path / "copy.json").write_bytes(path.read_bytes())
    done = ledger(path, tmp_path / "copy.json", tmp_path)
    assert "1 release of a data set" in printed(done)
    assert "who sees the release" in done.out
    assert "By addition" not in done.out


def test_a_model_made_elsewhere_is_added(ledger, tmp_path):
    first, second = saved(tmp_path, "a.json"), saved(tmp_path, "b.json", **GAUSSIAN)
    message = printed(ledger(tmp_path, "--add", first, "--add", second))
    assert "2 releases" in message
    assert "no ledger" not in message
    assert "who sees both releases" in message
    assert [entry.release for entry in Ledger.load(tmp_path / IN_FOLDER).entries] == [
        checksum(first),
        checksum(second),
    ]
    # Again: nothing changes.
    before = (tmp_path / IN_FOLDER).read_bytes()
    assert printed(ledger(tmp_path / IN_FOLDER, "--add", first)) == message
    assert (tmp_path / IN_FOLDER).read_bytes() == before
    printed(ledger(tmp_path / "fresh.json", "--add", first))
    assert len(Ledger.load(tmp_path / "fresh.CURATOR-ONLY.json")) == 1
    # Several ledgers are read as one.
    assert printed(ledger(tmp_path, tmp_path / "fresh.CURATOR-ONLY.json")) == message


def test_a_folder_whose_model_is_not_in_its_ledger(ledger, tmp_path):
    saved(tmp_path, "a.json")
    printed(ledger(tmp_path, "--add", tmp_path / "a.json"))
    saved(tmp_path)
    message = printed(ledger(tmp_path))
    assert "2 releases" in message
    assert "1 release in no ledger" in message
    step = f"expost ledger {tmp_path} --add {tmp_path / 'model.json'}"
    assert step in message
    assert "in no ledger" not in printed(ledger(*step.split()[2:]))
    assert len(Ledger.load(tmp_path / IN_FOLDER)) == 2


def test_a_release_is_added_to_the_ledger_that_a_folder_names(ask, ledger, tmp_path):
    printed(ask())
    other = saved(tmp_path, "other.json")
    assert "2 releases" in printed(ledger(tmp_path / "o", "--add", other))
    assert len(entries(tmp_path)) == 2
    assert not (tmp_path / "o" / IN_FOLDER).exists()


def test_releases_without_a_guarantee(ledger, tmp_path):
    with pytest.warns(expost.errors.SeededReleaseWarning):
        seeded = saved(tmp_path, "s.json", random_state=1)
    message = printed(ledger(seeded))
    assert "1 release with seeded noise" in message
    bare = saved(tmp_path, "n.json", epsilon=math.inf)
    message = printed(ledger(seeded, bare))
    assert "no privacy guarantee" in message
    assert "1 release without a guarantee" in message
    assert "can become certain" in message
    assert "composed by" not in message
    value = json.loads(ledger(seeded, bare, "--json-curator").out)
    assert value["together"] is None
    assert [item["epsilon"] for item in value["releases"]] == [1.0, "infinity"]


def test_releases_of_other_rows(ask, ledger, tmp_path):
    shared = tmp_path / "s.json"
    for index, option in enumerate(("", "--drop city", "")):
        printed(ask(f"{option} --ledger", shared, out=str(index)))
    done = ledger(tmp_path / "s.CURATOR-ONLY.json")
    assert re.findall(r" ([AB]) +\S+model.json$", done.out, re.MULTILINE) == ["A", "B", "A"]
    assert "2 different sets of rows" in printed(done)


def test_delta_is_given_or_follows_the_releases(ledger, tmp_path):
    paths = [saved(tmp_path, f"{name}.json", noise="gaussian", delta=1e-3) for name in "ab"]
    assert "ε at δ = 0.002 " in ledger(*paths).out
    assert "ε at δ = 10⁻⁵ " in ledger(saved(tmp_path)).out
    pure = [saved(tmp_path, f"{name}.json") for name in "cd"]
    exact = table(ledger(*pure, "--delta", "0").out)
    assert exact["pld"] == exact["sequential"] == 2.0


def test_what_is_no_ledger_is_refused_in_one_sentence(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path)
    Path("empty").mkdir()
    Path("new").mkdir()
    nothing = Ledger.new().to_json()
    atomic.write_json(Path("new") / IN_FOLDER, expost.types.Audience.CURATOR_ONLY, nothing)
    Path("other.json").write_text('{"format": "expost-profile/1"}')
    Path("model.CURATOR-ONLY.json").write_text("{}")
    before = names(tmp_path)
    for arguments, words in (
        (("empty",), "holds neither a ledger nor a model.json"),
        (("new",), "lists no release yet"),
        (("other.json",), "nor a ledger"),
        (("no/new.json", "--add", "model.json"), "its folder does not exist"),
        (("a.json", "b.json", "--add", "model.json"), "name one ledger"),
        (("model.json", "--add", "model.json"), "is not a whole ledger"),
    ):
        refused(ledger(*arguments), tmp_path / "nothing", words)
        assert names(tmp_path) == before
