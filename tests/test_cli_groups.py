"""``expost profile --person``: persons at the command line, from a table to the page."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import expost
from expost.jobs.ledger import ledger_in
from program import Ran, naive_features, names, page_in, people, refused, settings_in, text
from report.cells import column, tables
from test_cli import RESULTS, model_of, naive_log_density, rows_of


def visits(rows: int = 60) -> list[list[str]]:
    """The people, each line a visit of one of about twenty patients, who come in any order."""
    rng = np.random.default_rng(5)
    table = people(rows)
    whose = rng.choice([f"kanarie {number}" for number in range(20)], rows)
    # The most frequent visitor has a third of all lines.
    whose[: rows // 3] = "kanarie 3"
    return [[*table[0], "patient"]] + [
        [*line, patient] for line, patient in zip(table[1:], whose, strict=True)
    ]


@pytest.fixture
def visits_csv(tmp_path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(text(visits()))
    return path


@pytest.fixture
def ask(program, visits_csv, tmp_path):
    """Run ``expost profile`` on the visits, with these options; the results go to tmp_path/out."""

    def call(options: str = "", *more: object, data=visits_csv, out="o") -> Ran:
        where = ("--target", "income", "--out", tmp_path / out)
        return program("profile", data, *where, *options.split(), *more)

    return call


def naive_person_losses(table: list[list[str]], model: dict) -> dict[str, float]:
    """log p(θ; D)/p(θ; D without all lines of a patient), each from its own sum over rows."""
    log_density = naive_log_density(table, model)
    whose = np.array([line[-1] for line in table[1:]])
    everybody = np.ones(len(whose), dtype=bool)
    return {
        patient: float(log_density(everybody) - log_density(whose != patient))
        for patient in dict.fromkeys(whose.tolist())
    }


def test_persons_get_the_losses_of_naive_densities(ask, tmp_path):
    done = ask("--person patient --drop number --epsilon 3")
    assert done.code == 0, done.err
    out, table = tmp_path / "o", visits()
    assert names(out) == RESULTS
    model, rows = model_of(out), rows_of(out)
    naive = naive_person_losses(table, model)
    sizes = [sum(line[-1] == patient for line in table) for patient in naive]
    # One line a person, in the order in which they come.
    assert rows["id"] == list(naive)
    assert rows["rows"] == sizes
    truth = np.array(list(naive.values()))
    assert np.all(np.subtract(rows["loss_high"], rows["loss_low"]) < 2e-3)
    assert np.all(truth > np.subtract(rows["loss_low"], 1e-9))
    assert np.all(truth < np.add(rows["loss_high"], 1e-9))
    # Power: a tenth more would not pass.
    assert not np.all(
        (1.1 * truth > rows["loss_low"]) & (1.1 * truth < np.array(rows["loss_high"]))
    )
    # Whose row it is, is no feature, and nothing that leaves the building says it.
    assert "patient" not in model["encoding"]["columns"]
    assert "kanarie" not in (out / "model.json").read_text()
    assert "patient" not in json.loads((out / "encoding.CURATOR-ONLY.json").read_text())["columns"]
    content = json.loads((out / "profile.CURATOR-ONLY.json").read_text())
    # Of m rows at once ε·m + m(m − 1)A²/2, A = 1/σ (mechanisms.objective, worst_case_of).
    most, scale = max(sizes), model["mechanism"]["scale"]
    assert content["unit"] == "person"
    assert content["worst_case"] == pytest.approx(3 * most + most * (most - 1) / scale**2 / 2)
    parquet = pq.read_table(out / "profile.CURATOR-ONLY.parquet")
    assert parquet.column_names[:4] == ["person", "id", "rows", "rank"]
    assert parquet["id"].to_pylist() == list(naive)
    assert sum(parquet["rows"].to_pylist()) == 60
    # What is printed, and the page, speak of persons.
    assert f" {len(naive)} persons with 60 rows" in done.out
    assert f"any person with up to {max(sizes)} rows" in done.out
    assert settings_in(out)["persons"] == ("by 'patient'", "given")
    page = (out / "report.CURATOR-ONLY.html").read_text()
    assert f" {len(naive)} persons with 60 rows" in page
    assert list(naive)[int(np.argmax(rows["exposure"]))] in page


def test_a_model_that_exists_is_profiled_by_person(ask, visits_csv, tmp_path):
    assert ask("--drop patient --drop number", out="rows").code == 0
    model = tmp_path / "rows" / "model.json"
    done = ask("--person patient --json-curator --model", model)
    assert done.code == 0, done.err
    document = page_in(tmp_path / "o").get("profile")
    rows = rows_of(tmp_path / "o")
    features, y = naive_features(visits())
    whose = [line[-1] for line in visits()[1:]]
    again = expost.profile(model, features, np.where(y > 0, ">50K", "<=50K"), persons=whose)
    assert rows["id"] == list(again.ids)
    np.testing.assert_allclose(rows["loss"], again.loss, rtol=0, atol=1e-9)
    assert (tmp_path / "o" / "model.json").read_bytes() == model.read_bytes()
    assert (document.facts["rows"], document.facts["epsilon"]) == (60, 1)
    listed, _ = (each for each in tables(document) if each.columns[0].title == "rank")
    largest = rows["rank"].index(1)
    assert column(listed, "person")[1][0] == rows["id"][largest]
    assert column(listed, "rows")[1][0] == rows["rows"][largest]
    settings = settings_in(tmp_path / "o")
    assert (settings["persons"][1], settings["epsilon"][1]) == ("given", "of the model")
    # A person's rows stay together whatever the order of the lines, of which the model knows none.
    lines = visits()
    visits_csv.write_text(text([lines[0], *lines[:0:-1]]))
    assert ask("--person patient --model", model, out="turned").code == 0
    turned = rows_of(tmp_path / "turned")
    assert sorted(zip(turned["id"], turned["rows"], strict=True)) == sorted(
        zip(rows["id"], rows["rows"], strict=True)
    )
    order = [turned["id"].index(patient) for patient in rows["id"]]
    np.testing.assert_allclose(np.array(turned["loss"])[order], rows["loss"], atol=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--person patient --id number", "--id | cannot be combined with --person"),
        ("--person income", "--person 'income' | is the target"),
        ("--person patient --drop patient", "drop='patient' | is the person column"),
        ("--max-rows-per-person 3", "--max-rows-per-person | --person"),
        ("--cap-rows", "--cap-rows | --person"),
        ("--person patient --cap-rows", "--cap-rows | --max-rows-per-person"),
    ],
)
def test_options_of_persons_that_do_not_go_together(ask, tmp_path, options, words):
    refused(ask(options), tmp_path / "o", words)


def test_a_row_without_a_person_is_refused(ask, visits_csv, tmp_path):
    lines = visits()
    lines[7][-1] = "gone"
    visits_csv.write_text(text(lines))
    options = "--person patient --missing gone --missing ? --missing"
    words = "person column 'patient', row 7: is missing | every row must have a person | its own"
    refused(ask(options, ""), tmp_path / "o", words)


def test_one_person_who_owns_every_row_is_refused_before_anything_is_drawn(
    ask, visits_csv, tmp_path
):
    lines = visits()
    visits_csv.write_text(text([lines[0], *([*line[:-1], "kanarie"] for line in lines[1:])]))
    refused(ask("--person patient"), tmp_path / "o", "'patient' | one person owns every row")


def test_a_feature_of_the_model_is_no_person_column(ask, tmp_path):
    assert ask("--drop number --drop patient", out="rows").code == 0
    model = tmp_path / "rows" / "model.json"
    refused(
        ask("--person city --model", model),
        tmp_path / "o",
        "--person 'city' | feature of the model",
    )
    encoding = tmp_path / "rows" / "encoding.CURATOR-ONLY.json"
    refused(
        ask("--person city --encoding", encoding),
        tmp_path / "o",
        "--person 'city' | feature of the encoding",
    )
    assert ask("--person patient --encoding", encoding).code == 0


# -- at most k rows of a person ------------------------------------------------------------------


def firsts(table: list[list[str]], most: int) -> list[list[str]]:
    """The table with the first ``most`` lines of each patient."""
    first_rows: dict[str, int] = {}
    kept = [table[0]]
    for line in table[1:]:
        first_rows[line[-1]] = first_rows.get(line[-1], 0) + 1
        if first_rows[line[-1]] <= most:
            kept.append(line)
    return kept


def test_more_rows_than_a_person_may_have_are_refused(ask, tmp_path):
    """By the calibration too, see test_rows_per_person.py: here the remedy is named."""
    counts = Counter(line[-1] for line in visits()[1:])
    beyond, largest = sum(size > 3 for size in counts.values()), max(counts.values())
    words = f"--max-rows-per-person 3: {beyond} persons have more rows | {largest} | --cap-rows"
    refused(ask("--person patient --drop number --max-rows-per-person 3"), tmp_path / "o", words)


def test_the_first_rows_of_each_person_are_kept(ask, visits_csv, tmp_path):
    """A run with --cap-rows is the run of the table whose other lines were taken out by hand."""
    table, kept = visits(), firsts(visits(), 3)
    encoding = tmp_path / "whole" / "encoding.CURATOR-ONLY.json"
    assert ask("--drop number --drop patient", out="whole").code == 0
    options = "--person patient --epsilon 2 --max-rows-per-person 3 --seed 1 --encoding"
    done = ask(f"{options} {encoding} --cap-rows")
    assert done.code == 0, done.err
    left = len(table) - len(kept)
    assert f"{left} of 60 rows were left out" in done.out
    assert settings_in(tmp_path / "o")["rows per person"][0] == "at most 3, others left out"
    (tile,) = (each for each in page_in(tmp_path / "o").tiles if each.label == "Guarantee")
    assert tile.value == "ε = 2"
    assert any("persons with up to 3 rows" in line for line in tile.lines)
    assert any("any person with up to 3 rows" in line for line in tile.lines)
    visits_csv.write_text(text(kept))
    again = ask(f"{options} {encoding}", out="by-hand")
    assert again.code == 0, again.err
    assert "left out" not in again.out
    model, other = model_of(tmp_path / "o"), model_of(tmp_path / "by-hand")
    assert model["theta"] == other["theta"]
    assert model["n"] == len(kept) - 1
    assert model["mechanism"]["rows_per_person"] == 3
    rows, truth = rows_of(tmp_path / "o"), rows_of(tmp_path / "by-hand")
    assert rows == truth
    assert max(rows["rows"]) == 3
    # The groups of the report are those of the rows that were kept.
    groups = [
        [
            section.blocks
            for section in page_in(tmp_path / out).get("profile").sections
            if section.id == "groups"
        ]
        for out in ("o", "by-hand")
    ]
    assert groups[0] == groups[1]
    assert len(groups[0][0]) > 2
    # The model is profiled again from the whole table.
    visits_csv.write_text(text(table))
    model_file = tmp_path / "o" / "model.json"
    assert ask("--person patient --cap-rows --model", model_file, out="again").code == 0
    assert rows_of(tmp_path / "again")["loss"] == rows["loss"]
    ledger = json.loads(ledger_in(tmp_path / "o").read_text())
    assert [entry.get("rows_per_person") for entry in ledger["entries"]] == [None, 3]


def test_a_model_has_its_own_limit(ask, tmp_path):
    assert ask("--drop number --drop patient", out="rows").code == 0
    model = tmp_path / "rows" / "model.json"
    options = "--person patient --max-rows-per-person 3 --model"
    refused(ask(options, model), tmp_path / "o", "--max-rows-per-person: the model has its own")
    options = "--person patient --cap-rows --model"
    refused(ask(options, model), tmp_path / "o", "--cap-rows | single rows")
