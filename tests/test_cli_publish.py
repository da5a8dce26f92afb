"""``expost publish`` and ``expost lookup`` as their users meet them."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

from expost import PrivateLogisticRegression, profile
from expost.data import Encoding, open_table
from expost.jobs import publish as publish_job
from expost.ledger import Ledger
from expost.mechanisms.publishing import PublishingBudget
from expost.publishing.publish import publish
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.types import Audience
from program import listed, mode, names, people, refused, room_for
from settings import OUTPUT

ENCODING = {
    "columns": {
        "age": {"mean": 45, "scale": 20},
        "city": {"levels": ["Oslo", "Bergen", "Paris"]},
        "smoker": {"levels": ["true", "false"]},
        "hours": {"mean": 40, "scale": 10, "fill": 40, "cut": None},
    },
    "dropped": ["number"],
    "target": {"classes": ["<=50K", ">50K"]},
    "data_norm": 5,
}
PUBLIC = {"report.json", "report.html", "report.md", "summary.json"}
RESULTS = PUBLIC | {"comparison.CURATOR-ONLY.json", "comparison.CURATOR-ONLY.parquet"}
SPENT = ("--kind", "data-dependent", "--epsilon-gradient", "0.7", "--epsilon-hessian", "0.3")
PERSON = ("--set", "age=39", "--set", "city=Oslo", "--set", "smoker=true", "--set", "hours=40")
BUDGET = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)


def made(people_csv, folder: Path, **options) -> Path:
    """A model.json of the people, made with an encoding that was given."""
    table = open_table(str(people_csv), missing=("", "?"))
    encoding = Encoding.read(table, target="income", given=ENCODING)
    encoded = encoding.encode_table(encoding.open(people_csv))
    labels = np.where(encoded.y > 0, ">50K", "<=50K")
    model = PrivateLogisticRegression(data_norm=5.0, classes=("<=50K", ">50K"), **options)
    release = model.fit(encoded.X, labels).release_
    release = replace(release, encoding=encoding.to_json(), feature_names=encoding.feature_names)
    return release.save(folder / "model.json")


@pytest.fixture
def model(people_csv, tmp_path) -> Path:
    """By objective perturbation, for publishing."""
    return made(
        people_csv,
        tmp_path,
        mechanism="objective",
        noise="gaussian",
        delta=1e-6,
        regularization="for-publishing",
        publishing=BUDGET,
    )


@pytest.fixture
def ask(program, people_csv, tmp_path, model):
    """Run ``expost publish`` on the model of the people; the results go to tmp_path/out."""

    def call(*more, data=people_csv, target="income", out="o", of=model):
        table = () if data is None else (data, "--target", target)
        return program("publish", *table, "--model", of, "--out", tmp_path / out, *more)

    return call


def naive(model: Path, path: Path, table):
    """Exposures and features of the people, in Python."""
    release = Release.load(model)
    encoding = Encoding.from_json(release.encoding)
    encoded = encoding.encode_table(encoding.open(str(path)))
    labels = np.array([line[-1] for line in table[1:]])
    return profile(release, encoded.X, labels), encoded.X, labels


@pytest.mark.parametrize("kind", [(), SPENT])
def test_the_files_and_what_they_hold(ask, kind, model, people_csv, tmp_path):
    before = model.read_bytes()
    done = ask("--id", "number", *kind)
    assert done.code == 0, done.err
    out = tmp_path / "o"
    assert names(out) == RESULTS
    assert mode(out / "report.json") == 0o644
    assert mode(out / "comparison.CURATOR-ONLY.json") == 0o600
    assert mode(out / "comparison.CURATOR-ONLY.parquet") == 0o600
    # The model is the one that was released, and stays as it was.
    assert model.read_bytes() == before
    report = PublishedReport.load(out / "report.json")
    assert report.release.to_json() == Release.load(model).to_json()
    exact, X, labels = naive(model, people_csv, people())
    bound, first, second = report.bound(X, labels)
    table = pq.read_table(out / "comparison.CURATOR-ONLY.parquet").to_pydict()
    value = json.loads((out / "comparison.CURATOR-ONLY.json").read_text())
    assert value["audience"] == "curator-only"
    assert table["id"] == [f"p{row:03d}" for row in range(60)]
    for columns in (table, value["table"]):
        assert columns["exposure"] == pytest.approx(exact.exposure)
        assert columns["loss"] == pytest.approx(exact.loss)
        assert columns["bound"] == pytest.approx(bound)
        assert columns["epsilon_gradient"] == pytest.approx(first)
        assert columns["epsilon_hessian"] == pytest.approx(second)
        assert columns["everything"] == pytest.approx(report.everything(X, labels))
        assert columns["ratio"] == pytest.approx(bound / exact.exposure)
    assert "Every published bound holds" in done.out
    assert f"expost lookup {out / 'report.json'} --set age=" in done.out
    *_, empty, page = done.out.splitlines()
    assert (empty, page) == ("", f"Report: {(out / 'report.html').resolve()}")
    # Nothing of the curator's folders is on the page.
    assert str(tmp_path) not in (out / "report.html").read_text()
    if kind:
        assert "ε = 0.7 and ε = 0.3 (δ = 10⁻⁶)" in done.out
        assert np.all(first > 0)
    else:
        assert "this report spends nothing more" in done.out
        assert report.to_json() == publish(model).to_json()


def test_a_report_needs_no_table(ask, tmp_path, model):
    done = ask(data=None)
    assert done.code == 0, done.err
    assert names(tmp_path / "o") == PUBLIC
    assert "exact exposure" not in done.out
    report = PublishedReport.load(tmp_path / "o" / "report.json")
    assert report.to_json() == publish(model).to_json()


def test_output_perturbation_is_published_too(program, people_csv, tmp_path):
    of = made(people_csv, tmp_path, **OUTPUT)
    done = program("publish", people_csv, "--model", of, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    assert "for all rows at once" in done.out
    done = program("publish", people_csv, "--model", of, "--out", tmp_path / "p", *SPENT)
    refused(done, tmp_path / "p", "output perturbation | mechanism='objective'")


def test_for_machines(ask, tmp_path):
    done = ask("--json-curator", *SPENT)
    value = json.loads(done.out)
    assert set(value) >= {"files", "report", "notices", "forecast", "comparison"}
    assert value["report"] == {
        "kind": "data-dependent",
        "audience": "public",
        "read_from_data": [],
        "fails_with": pytest.approx(3e-6),
    }
    assert value["comparison"]["failures"] == 0
    # What it spent is listed in the ledger of the model, not in the folder that is published.
    listed = {"people.ledger.CURATOR-ONLY.json"}
    assert {Path(path).name for path in value["files"].values()} == RESULTS | listed
    assert value["files"]["ledger"] == str(tmp_path / "people.ledger.CURATOR-ONLY.json")
    alone = json.loads(ask("--json-curator", data=None, out="p").out)
    assert set(alone) >= {"files", "report", "notices", "forecast"}
    assert "comparison" not in alone


def test_an_earlier_report_is_not_overwritten_without_force(ask, tmp_path):
    assert ask(*SPENT).code == 0
    out = tmp_path / "o"
    before = (out / "report.json").read_bytes()
    done = ask(*SPENT)
    assert done.code == 2
    assert "--force" in done.err
    assert "what it spent is not" in done.err
    assert (out / "report.json").read_bytes() == before
    done = ask(*SPENT, "--force")
    assert done.code == 0
    assert "remains spent" in " ".join(done.out.split())
    assert "0.7 + 0.3" in done.out
    assert (out / "report.json").read_bytes() != before
    # Another kind over it: the notice stays; a report that spent nothing has none.
    assert "remains spent" in ask("--force").out
    assert "stays spent" not in ask("--force", data=None).out
    assert names(out) == PUBLIC


def test_what_does_not_belong_to_the_model_is_refused(ask, people_csv, tmp_path, model):
    lines = people_csv.read_text().splitlines()
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("\n".join(lines[:-3]) + "\n")
    refused(ask(data=fewer), tmp_path / "o", "57 rows: the model was made from 60")
    refused(ask(*SPENT, data=None), tmp_path / "o", "needs the table")
    little = (*SPENT[:-1], "0.001")
    words = "needs a model with lambda of at least | for-publishing"
    refused(ask(*little), tmp_path / "o", words)
    bare = replace(Release.load(model), encoding=None).save(tmp_path / "bare.json")
    refused(ask(of=bare), tmp_path / "o", "was not made from a table")


FOR_REVIEW = {
    "report.CURATOR-ONLY.json",
    "report.CURATOR-ONLY.html",
    "report.CURATOR-ONLY.md",
    "summary.CURATOR-ONLY.json",
}


@pytest.fixture
def read(program, people_csv, tmp_path) -> Path:
    """A model whose means, scales, levels and labels were read from the data."""
    arguments = ("--target", "income", "--drop", "number", "--out", tmp_path / "p")
    assert program("profile", people_csv, *arguments).code == 0
    return tmp_path / "p" / "model.json"


@pytest.mark.parametrize("engine", [(), ("--engine", "local:2")])
def test_an_encoding_read_from_the_data_is_for_a_review(
    program, read, people_csv, tmp_path, engine
):
    out = tmp_path / "o"
    arguments = (people_csv, "--target", "income", "--model", read, "--out", out, *engine)
    done = program("publish", *arguments)
    assert done.code == 0, done.err
    compared = {"comparison.CURATOR-ONLY.json", "comparison.CURATOR-ONLY.parquet"}
    assert names(out) == FOR_REVIEW | compared
    assert {mode(out / name) for name in FOR_REVIEW} == {0o600}
    printed = " ".join(done.out.split())
    assert Audience.NEEDS_REVIEW.meaning in printed
    assert "the mean and scale of 'age'" in printed
    assert "holds given these constants" in printed
    assert "before a review" in printed
    report = PublishedReport.load(out / "report.CURATOR-ONLY.json")
    assert report.audience is Audience.NEEDS_REVIEW
    assert report.read_from_data == Release.load(read).read_from_data
    assert report.to_json() == publish(read).to_json()
    for name in ("report.CURATOR-ONLY.html", "report.CURATOR-ONLY.md"):
        text = html.unescape((out / name).read_text()).replace("\\", "")
        assert "holds given these constants" in text
        for constant in report.read_from_data:
            assert constant in text, constant
    # A ledger that is asked about the folder finds it.
    assert program("ledger", out).code == 0


def test_a_report_for_review_is_shown_as_one(program, read, tmp_path):
    out = tmp_path / "o"
    message = json.loads(program("publish", "--model", read, "--out", out, "--json-curator").out)
    assert message["report"]["audience"] == "needs-review"
    assert message["report"]["read_from_data"] == list(Release.load(read).read_from_data)
    assert any("holds given these constants" in notice for notice in message["notices"])
    report = out / "report.CURATOR-ONLY.json"
    done = program("lookup", report, *PERSON, "--out", tmp_path / "l")
    assert done.code == 0, done.err
    assert Audience.NEEDS_REVIEW.meaning in done.out
    assert "Read from the data: " in done.out
    assert "holds given these constants" in done.out
    assert names(tmp_path / "l") == FOR_REVIEW - {report.name}
    assert {mode(path) for path in listed(tmp_path / "l")} == {0o600}
    answer = json.loads(program("lookup", report, *PERSON, "--json").out)
    assert answer["audience"] == "needs-review"
    assert answer["read_from_data"] == message["report"]["read_from_data"]
    # Nothing of it is on a public page: alone it is refused, among others it is left out.
    words = "nothing here is public | read from the data | publish again"
    refused(
        program("report", out, "--public", "--out", tmp_path / "site"), tmp_path / "site", words
    )
    assert program("risk", "--epsilon", "1", "--out", tmp_path / "risk").code == 0
    done = program("report", out, tmp_path / "risk", "--public", "--out", tmp_path / "site")
    assert done.code == 0, done.err
    assert "constants that were read from the data" in done.out
    for path in listed(tmp_path / "site"):
        text = html.unescape(path.read_text())
        assert not any(f"'{name}'" in text for name in ENCODING["columns"])


def test_what_a_report_for_review_spends_is_listed(ask, program, model, tmp_path):
    read = replace(Release.load(model), read_from_data=("label_range (the labels)",))
    of = read.save(tmp_path / "read.json")
    done = ask(*SPENT, of=of)
    assert done.code == 0, done.err
    report = PublishedReport.load(tmp_path / "o" / "report.CURATOR-ONLY.json")
    assert report.kind == "data-dependent"
    assert report.audience is Audience.NEEDS_REVIEW
    entries = Ledger.load(tmp_path / "people.ledger.CURATOR-ONLY.json").entries
    assert [entry.kind for entry in entries] == ["model", "report"]
    assert [entry.read_from_data for entry in entries] == [1, 1]
    assert entries[1].release == report.to_json()["sha256"]
    assert "2 releases used constants of the data" in program("ledger", tmp_path / "o").out
    done = ask(*SPENT, "--force", of=of)
    assert done.code == 0, done.err
    assert "This remains spent" in " ".join(done.out.split())


def test_reports_for_different_readers_do_not_share_a_folder(ask, program, read, tmp_path):
    assert ask(data=None).code == 0
    command = ("publish", "--model", read, "--force", "--out")
    before = {path.name: path.read_bytes() for path in listed(tmp_path / "o")}
    done = program(*command, tmp_path / "o")
    assert done.code == 2
    assert "holds report.json" in done.err
    assert {path.name: path.read_bytes() for path in listed(tmp_path / "o")} == before
    # Nor does it replace the page of the profile.
    done = program(*command, tmp_path / "p")
    assert done.code == 2
    assert "holds report.CURATOR-ONLY.html" in done.err
    assert program(*command, tmp_path / "q").code == 0
    assert program(*command, tmp_path / "q").code == 0
    done = ask("--force", data=None, out="q")
    assert done.code == 2
    assert "holds report.CURATOR-ONLY.json" in done.err
    # A page of something else would be taken for that of the report.
    done = program("risk", "--epsilon", "1", "--force", "--out", tmp_path / "q")
    assert done.code == 2
    assert "holds report.CURATOR-ONLY.json" in done.err


def test_a_full_disk(ask, tmp_path):
    with room_for(100):
        done = ask(*SPENT)
    refused(done, tmp_path / "o", "free some space")
    report = tmp_path / "o" / "report.json"
    with room_for(6000):
        done = ask(*SPENT)
    assert done.code == 2
    assert "the report was written and is valid" in done.err
    PublishedReport.load(report)


# -- lookup ----------------------------------------------------------------------------------------


@pytest.fixture
def report(ask, tmp_path) -> Path:
    assert ask(*SPENT).code == 0
    return tmp_path / "o" / "report.json"


@pytest.fixture
def simple(ask, tmp_path) -> Path:
    assert ask(data=None, out="s").code == 0
    return tmp_path / "s" / "report.json"


def test_a_person_is_answered_in_plain_words(program, report):
    done = program("lookup", report, *PERSON, "--label", ">50K")
    assert done.code == 0, done.err
    loaded = PublishedReport.load(report)
    (answer,) = loaded.lookup({"age": 39, "city": "Oslo", "smoker": "true", "hours": 40}, ">50K")
    printed = " ".join(done.out.split())
    for words in (
        "whether or not your row was in the data",
        "Random guessing is 50 %",
        "fails with probability at most 4 × 10⁻⁶",
        "at δ = 10⁻⁶ each",
        # A limit of the guarantee that has to be stated: it does not hold for rows chosen later.
        "fixed before the noise of the model and of this report was drawn",
    ):
        assert words in printed, words
    shown = float(printed.split("is at most ")[1].split()[0]) / 100
    assert expit(answer.everything) <= shown <= expit(answer.everything) + 1.01e-3
    (line,) = re.findall(r"^ +([\d.]+) %.*$", done.out, re.MULTILINE)
    assert expit(answer.exposure) <= float(line) / 100 <= expit(answer.exposure) + 1.01e-3


def test_both_labels_where_none_is_given(program, simple):
    done = program("lookup", simple, *PERSON)
    labels = re.findall(r"^  (<=50K|>50K) +[\d.]+ %", done.out, re.MULTILINE)
    assert labels == ["<=50K", ">50K"]
    assert "the largest bound holds for any of them" in done.out


def test_lookup_for_machines(program, report):
    value = json.loads(program("lookup", report, *PERSON, "--json").out)
    loaded = PublishedReport.load(report)
    answers = loaded.lookup({"age": 39, "city": "Oslo", "smoker": "true", "hours": 40})
    assert [entry["label"] for entry in value["answers"]] == ["<=50K", ">50K"]
    for entry, answer in zip(value["answers"], answers, strict=True):
        assert entry["exposure"] == answer.exposure
        assert entry["certainty"] == answer.certainty
        assert entry["everything"] == answer.everything
        assert entry["epsilon_gradient"] == answer.epsilon_gradient
        assert entry["fails_with"] == pytest.approx(3e-6)
    assert value["kind"] == "data-dependent"
    assert value["holds_for_all_rows_at_once"] is False


def test_the_values_of_a_person_are_named_once(program, simple, tmp_path):
    """What a value may be is tested where it is read, in test_published.py."""
    for arguments, words in (
        ((), "age, city, smoker, hours: must be given"),
        ((*PERSON, "--set", "height"), "must be COLUMN=VALUE"),
        ((*PERSON, "--set", "age=40"), "given twice"),
    ):
        refused(program("lookup", simple, *arguments), tmp_path / "nothing", words)
    done = program("lookup", simple, *PERSON[2:], "--set", "age=900")
    assert "cut to that range" in done.out


def test_a_column_whose_name_holds_an_equals_sign(tmp_path):
    column = {"mean": 0, "scale": 1}
    encoding = {
        "columns": {"a": column, "a=b": column},
        "target": {"classes": ["no", "yes"]},
        "data_norm": 9,
    }
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "a=b"])
    fitted = PrivateLogisticRegression(encoding=encoding, regularization=0.1)
    report = publish(fitted.fit(frame, np.where(frame["a"] > 0, "yes", "no")))
    path = report.save(tmp_path / "report.json")
    _, answers = publish_job.look_up(path, ["a=b=0.25", "a=0.5"], "yes")
    assert answers == report.lookup({"a": "0.5", "a=b": "0.25"}, "yes")
