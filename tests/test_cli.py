"""The program as a new user meets it: the main job, bad input, and what simply works.

The main paths run the installed program in a process of its own; the rest calls ``main`` here,
which is the same function.
"""

import csv
import gzip
import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import expost
from expost.cli.app import app
from expost.errors import InvalidInput
from expost.files.directory import RUN
from expost.jobs import profile as profile_job
from expost.jobs import table as table_job
from expost.jobs.profile import run
from expost.jobs.requests import ProfileRequest
from expost.profiles.verb import SEEDED
from expost.report import parse_json
from program import (
    PROGRAM,
    Ran,
    finished,
    imported,
    installed,
    mode,
    naive_features,
    naive_unit_rows,
    names,
    page_in,
    people,
    refused,
    room_for,
    settings_in,
    text,
)
from report.cells import column, tables

LEDGER = "ledger-path.CURATOR-ONLY.json"
RESULTS = {
    "model.json",
    LEDGER,
    "encoding.CURATOR-ONLY.json",
    "profile.CURATOR-ONLY.json",
    "profile.CURATOR-ONLY.parquet",
    "report.CURATOR-ONLY.html",
    "summary.CURATOR-ONLY.json",
}


@pytest.fixture
def ask(program, people_csv, tmp_path):
    """Run ``expost profile`` on the people, with these options; the results go to tmp_path/out."""

    def call(options: str = "", *more: object, data=people_csv, target="income", out="o") -> Ran:
        where = ("--target", target, "--out", tmp_path / out)
        return program("profile", data, *where, *options.split(), *more)

    return call


@pytest.fixture
def profiled(ask, tmp_path) -> Path:
    """The folder of a finished run, keyed by the number."""
    done = ask("--id number", out="report")
    assert done.code == 0, done.err
    return tmp_path / "report"


def rows_of(folder: Path) -> dict[str, list]:
    name = json.loads((folder / "profile.CURATOR-ONLY.json").read_text())["table"]
    assert name == "profile.CURATOR-ONLY.parquet"
    return pq.read_table(folder / name).to_pydict()


def model_of(folder: Path) -> dict:
    return json.loads((folder / "model.json").read_text())


# The main job ----------------------------------------------------------------------------------


def naive_log_density(table: list[list[str]], model: dict):
    """The function from the rows that are there to log p(θ), up to a constant.

    b = −Σ∇ℓ − λθ is normal, and the density of θ is that of b times det(Σ∇²ℓ + λI).
    """
    features, y = naive_features(table)
    X, theta = naive_unit_rows(features, columns=4), np.array(model["theta"])
    penalty = model["regularization"] * len(y)
    scale = model["mechanism"]["scale"]
    p = 1 / (1 + np.exp(y * (X @ theta)))

    def log_density(rows: np.ndarray) -> float:
        noise = X[rows].T @ (y * p)[rows] - penalty * theta
        hessian = (X[rows].T * (p * (1 - p))[rows]) @ X[rows] + penalty * np.eye(len(theta))
        return np.linalg.slogdet(hessian)[1] - noise @ noise / (2 * scale**2)

    return log_density


def naive_losses(table: list[list[str]], model: dict) -> np.ndarray:
    """log p(θ; D)/p(θ; D without row i), each from its own sum over rows."""
    log_density, everybody = naive_log_density(table, model), np.arange(len(table) - 1)
    return np.array(
        [log_density(everybody) - log_density(np.delete(everybody, row)) for row in everybody]
    )


def edited_scale(model: dict, factor: float) -> dict:
    mechanism = model["mechanism"]
    return {**model, "mechanism": {**mechanism, "scale": factor * mechanism["scale"]}}


_RULE = "by rule, from public numbers alone"
SETTINGS = {
    "target": (r"income", "given"),
    "classes": (r"<=50K, >50K", "read from the data"),
    "epsilon": (r"3", "given"),
    "mechanism": (r"objective perturbation", _RULE),
    "delta": (r"1e-06", _RULE),
    "noise": (r"gaussian", _RULE),
    "loss": (r"logistic", "default"),
    "regularization": (r"0\.\d+", _RULE),
    "data_norm": (r"1", _RULE),
    "intercept": (r"0\.447214 in each row", _RULE),
    "rows": (r"60", "read from the data"),
    "randomness": (r"the operating system", "default"),
    "missing cells": (r"'', '\?', 'NA', .*'null'", "default"),
}


def test_the_main_job_gives_the_losses_of_naive_densities(people_csv, tmp_path):
    out = tmp_path / "new" / "report"
    arguments = [
        "profile",
        str(people_csv),
        "--target",
        "income",
        "--id",
        "number",
        "--epsilon",
        "3",
    ]
    command = [sys.executable, "-X", "importtime", str(PROGRAM), *arguments, "--out", str(out)]
    done = finished(command, env={"FORCE_COLOR": "1"})
    assert done.code == 0, done.err
    # No progress bar and no colours: this is no terminal, whatever FORCE_COLOR says.
    assert {line.partition(":")[0] for line in done.err.splitlines()} == {"import time"}
    assert "\x1b" not in done.out
    # No figure is drawn, no data set is loaded, and nothing of scikit-learn.
    assert {"numpy", "pyarrow"} <= imported(done)
    assert "duckdb" not in imported(done)
    assert not imported(done) & {"matplotlib", "sklearn", "polars", "statsmodels"}
    assert names(out) == RESULTS
    # model.json was made with bounds read from the data, so it is not for everybody either.
    assert {mode(path) for path in out.iterdir()} == {0o600}

    table, model, rows = people(), model_of(out), rows_of(out)
    assert (model["audience"], model["n"], model["mechanism"]["epsilon"]) == ("needs-review", 60, 3)
    assert model["classes"] == model["encoding"]["target"]["classes"] == ["<=50K", ">50K"]
    naive = naive_losses(table, model)
    width = np.subtract(rows["loss_high"], rows["loss_low"])
    assert np.all(width < 1e-3)
    assert np.all(naive > np.subtract(rows["loss_low"], 1e-9))
    assert np.all(naive < np.add(rows["loss_high"], 1e-9))
    # Power: a scale that is a hundredth smaller would not pass.
    wrong = naive_losses(table, edited_scale(model, 0.99))
    assert not np.all((wrong > rows["loss_low"]) & (wrong < rows["loss_high"]))

    # Every result is keyed by the id, in the order of the file.
    ids = [line[0] for line in table[1:]]
    assert rows["id"] == ids
    parquet = pq.read_table(out / "profile.CURATOR-ONLY.parquet")
    assert parquet["id"].to_pylist() == ids
    np.testing.assert_array_equal(parquet["loss"].to_numpy(), rows["loss"])
    most = ids[int(np.argmax(rows["exposure"]))]
    page = (out / "report.CURATOR-ONLY.html").read_text()
    assert most in page
    assert re.search(rf"^Most exposed row .* {most};", done.out, re.MULTILINE)
    # Every setting is in the report, with where it came from.
    settings = settings_in(out)
    for name, (value, origin) in SETTINGS.items():
        assert re.fullmatch(value, settings[name][0]), name
        assert settings[name][1] == origin, name
        assert name in page
    assert "accuracy" in page
    assert done.out.rstrip().endswith(f"Report: {(out / 'report.CURATOR-ONLY.html').resolve()}")


def test_the_demo_is_quick_prints_json_and_is_not_overwritten(program, tmp_path):
    start = time.monotonic()
    done = installed("demo", "--json-curator", cwd=tmp_path)
    assert time.monotonic() - start < 60
    assert (done.code, done.err) == (0, "")
    answer = json.loads(done.out)
    assert set(answer) >= {"files", "summary"}
    demo = RESULTS - {LEDGER} | {"ledger.CURATOR-ONLY.json"}
    assert {Path(path).name for path in answer["files"].values()} == demo
    assert names(tmp_path / "expost-demo") == demo
    page = parse_json(json.dumps(answer["summary"]))
    document = page.get("profile")
    assert document.facts["rows"] == 569
    _, base, noiseless = accuracies(document)
    assert base == pytest.approx(357 / 569)
    assert noiseless > 0.9
    rows, _ = (each for each in tables(document) if each.columns[0].title == "rank")
    assert rows.cells[0][1].startswith("patient ")
    chosen = {setting.name: setting.origin.value for setting in page.settings}
    assert chosen["epsilon"] == "default"
    assert chosen["classes"] == "given"
    out = tmp_path / "expost-demo"
    before = model_of(out)
    again = program("demo", "--out", out)
    assert (again.code, again.out) == (2, "")
    assert "--force" in again.message
    assert model_of(out) == before
    assert program("demo", "--out", out, "--force").code == 0
    assert model_of(out)["theta"] != before["theta"]


def accuracies(document, measure="accuracy"):
    """The released model, the base rate, and the model without noise, on the training rows."""
    (scores,) = (each for each in tables(document) if each.columns[0].title == "model")
    return column(scores, measure)[1]


# A model is drawn once, and kept -----------------------------------------------------------------


def test_a_process_killed_while_profiling_leaves_the_whole_model_and_nothing_else(
    people_csv, tmp_path, program
):
    out = tmp_path / "killed"
    script = (
        "import os, signal, sys\n"
        "from expost.cli import main\n"
        "from expost.jobs import profile\n"
        "profile.profile_of_table = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main.main()\n"
    )
    command = ["profile", str(people_csv), "--target", "income", "--out", str(out)]
    done = finished([sys.executable, "-c", script, *command])
    assert done.code == -signal.SIGKILL
    assert names(out) == {"model.json", LEDGER, RUN}
    model = expost.Release.load(out / "model.json")
    assert model.mechanism.rows == 60
    # It is taken up again from there, in the same folder.
    before = (out / "model.json").read_bytes()
    command += ["--model", str(out / "model.json")]
    message = program(*command).message
    assert "pass --resume to continue it, or --force" in message
    assert "lost" not in message
    again = program(*command, "--force")
    assert again.code == 0, again.err
    assert (out / "model.json").read_bytes() == before
    assert names(out) == RESULTS


def planted(*_, **__):
    raise InvalidInput("planted.")


def test_force_keeps_no_result_of_an_earlier_model(profiled, ask, monkeypatch):
    (profiled / "notes.txt").write_text("mine")
    old = (profiled / "model.json").read_bytes()
    monkeypatch.setattr(profile_job, "profile_of_table", planted)
    assert "not empty" in ask(out="report").message
    assert (profiled / "model.json").read_bytes() == old
    assert "planted" in ask("--force", out="report").message
    # A new model beside the old profile would be read as one result.
    assert names(profiled) == {"model.json", LEDGER, RUN, "notes.txt"}
    assert (profiled / "model.json").read_bytes() != old


def test_a_model_that_exists_is_profiled_and_never_redrawn(profiled, ask, tmp_path):
    before = (profiled / "model.json").read_bytes()
    done = ask("--id number --model", profiled / "model.json", out="again")
    assert done.code == 0, done.err
    assert (profiled / "model.json").read_bytes() == before
    assert (tmp_path / "again" / "model.json").read_bytes() == before
    assert rows_of(tmp_path / "again") == rows_of(profiled)
    assert settings_in(tmp_path / "again")["epsilon"] == ("1", "of the model")
    # The same losses as in Python, from the features as the naive encoding makes them.
    features, y = naive_features(people())
    result = expost.profile(profiled / "model.json", features, np.where(y > 0, ">50K", "<=50K"))
    np.testing.assert_allclose(result.loss, rows_of(profiled)["loss"], rtol=0, atol=1e-9)


FIXED = (
    "--epsilon 1", "--delta 1e-5", "--noise laplace", "--loss logistic", "--regularization auto",
    "--data-norm 3", "--label-range 0,3", "--classes <=50K,>50K", "--encoding encoding.json",
    "--seed 1", "--drop city", "--missing ?",
)  # fmt: skip


def test_what_a_model_fixes_cannot_be_asked_for_again(profiled, ask, tmp_path):
    for option in FIXED:
        done = ask(option, "--model", profiled / "model.json")
        name = option.partition(" ")[0]
        refused(done, tmp_path / "o", f"expost: {name}: the model has its own; leave {name} out.")


def test_a_model_is_refused_for_other_rows_or_another_target(ask, tmp_path):
    # Much budget, so that the noise is small beside what other rows would change.
    good, table, none = people(400), tmp_path / "table.csv", tmp_path / "none"
    table.write_text(text(good))
    drawn = ask("--drop number --epsilon 1000 --regularization 0.01", data=table)
    assert drawn.code == 0, drawn.err

    def again(lines: list[list[str]], target: str = "income", out: str = "none") -> Ran:
        table.write_text(text(lines))
        model = tmp_path / "o" / "model.json"
        return ask("--model", model, data=table, target=target, out=out)

    refused(again(people(400, seed=9)), none, "these rows cannot have made this model")
    refused(again(people(399)), none, "399 rows | made from 400")
    refused(again(good, target="smoker"), none, "target='smoker' | predicts 'income'")
    swapped = [[line[0], line[2], line[1], *line[3:]] for line in good[1:]]
    refused(again([good[0], *swapped]), none, "column 'age' | is not a number")
    narrow = [[*line[:2], *line[3:]] for line in good]
    refused(again(narrow), none, "column 'city' | is not in")
    # The columns may come in any order: they have names.
    assert again([line[::-1] for line in good], out="turned").code == 0
    # An edit is found by the checksum (mechanisms/test_release.py).
    model = tmp_path / "o" / "model.json"
    model.write_text(model.read_text().replace('"needs-review"', '"public"'))
    refused(again(good), none, "model.json | is not a released model")


# Bounds known without the data -----------------------------------------------------------------


GIVEN = {
    "columns": {
        "age": {"mean": 45, "scale": 20},
        "city": {"levels": ["Bergen", "Oslo", "Paris", "Rome"]},
        "smoker": {"levels": ["false", "true"]},
        "hours": {"mean": 40, "scale": 10, "fill": 40},
    },
    "dropped": ["number"],
    "target": {"classes": ["<=50K", ">50K"]},
    "data_norm": 6,
}


def test_a_model_whose_bounds_were_all_given_may_be_published(ask, tmp_path):
    given = tmp_path / "given.json"
    given.write_text(json.dumps(GIVEN))
    done = ask("--encoding", given)
    assert done.code == 0, done.err
    model = model_of(tmp_path / "o")
    assert (model["audience"], model["read_from_data"]) == ("public", [])
    assert "read from the data" not in done.out
    # The number of rows is public in a released model.
    read = [name for name, (_, origin) in settings_in(tmp_path / "o").items() if "read" in origin]
    assert read == ["rows"]
    assert not any(alert.severity == "review" for alert in page_in(tmp_path / "o").alerts)
    assert mode(tmp_path / "o" / "model.json") == mode(tmp_path / "o" / "encoding.json") == 0o644
    assert mode(tmp_path / "o" / "profile.CURATOR-ONLY.json") == 0o600
    settings = settings_in(tmp_path / "o")
    assert {settings[name][1] for name in ("classes", "data_norm")} == {"given"}

    # One bound fewer, and it is no longer so; it is said once.
    partial = {name: entry for name, entry in GIVEN["columns"].items() if name != "age"}
    given.write_text(json.dumps({**GIVEN, "columns": partial}))
    done = ask("--encoding", given, out="p")
    assert model_of(tmp_path / "p")["audience"] == "needs-review"
    assert done.out.count("the mean and scale of 'age'") == 1


@pytest.mark.parametrize("token", ["", "?", "NA", "N/A", "NaN", "nan", "NULL", "null"])
def test_usual_tokens_are_missing_cells_by_default(ask, tmp_path, token):
    """A column of numbers stays one, in the files that R, pandas, NumPy and databases write."""
    path = tmp_path / "missing.csv"
    path.write_text(text(people()).replace("?", token))
    done = ask("--id number", data=path)
    assert done.code == 0, done.err
    assert "hours is missing" in model_of(tmp_path / "o")["feature_names"]
    assert "are not numbers" not in done.out


def test_a_whole_encoding_also_decides_what_is_missing(ask, tmp_path):
    """The first run and --model must read the same cells as missing, whatever the default is."""
    path = tmp_path / "na.csv"
    path.write_text(text(people()).replace("?", "NA"))
    first = ask("--id number --missing NA", data=path, out="a")
    assert first.code == 0, first.err
    whole = tmp_path / "a" / "encoding.CURATOR-ONLY.json"
    second = ask("--id number --encoding", whole, data=path, out="b")
    assert second.code == 0, second.err
    assert settings_in(tmp_path / "b")["missing cells"] == ("'NA'", "given")
    assert model_of(tmp_path / "b")["encoding"] == model_of(tmp_path / "a")["encoding"]
    third = ask("--id number --model", tmp_path / "b" / "model.json", data=path, out="c")
    assert third.code == 0, third.err
    assert rows_of(tmp_path / "c") == rows_of(tmp_path / "b")
    for option in ("--missing ?", "--drop city", "--data-norm 9"):
        done = ask(option, "--encoding", whole, data=path)
        refused(done, tmp_path / "o", f"{option.partition(' ')[0]} | the encoding has its own")


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "Missing option '--target'"),
        # A budget without a safe grid is found with n and d at hand.
        ("--target income --epsilon 1e300", "epsilon=1e+300 | too extreme"),
        ("--target income --epsilon 1e-320", "epsilon"),
        ("--target age --loss squared --classes a,b", "classes | left out"),
        ("--target age --loss squared --label-range 3,0", "low must be below high"),
        ("--target income --id city", "'city' | different in each"),
        ("--target number --id number", "'number' | is not in"),
        ("--target income --drop income", "drop='income' | is the target"),
        ("--target income --drop number --id number", "drop='number' | is the id column"),
    ],
)
def test_a_column_that_cannot_play_its_part_is_refused(
    program, people_csv, tmp_path, options, words
):
    done = program("profile", people_csv, "--out", tmp_path / "o", *options.split())
    refused(done, tmp_path / "o", words)


def test_a_norm_is_given_once(ask, tmp_path):
    given = tmp_path / "given.json"
    given.write_text('{"data_norm": 5}')
    refused(ask("--data-norm 3 --encoding", given), tmp_path / "o", "--data-norm | --encoding")


def test_an_error_in_a_process_of_its_own_is_one_sentence(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,income\n90210,x\nkanarie\n")
    done = installed("profile", path, "--target", "income", "--out", tmp_path / "o")
    refused(done, tmp_path / "o", f"expost: {path}, line 3: has 1 cell(s) where the header has 2.")


# The output folder -----------------------------------------------------------------------------


def test_a_folder_that_cannot_hold_the_results_is_refused_before_any_work(
    ask, people_csv, tmp_path, monkeypatch
):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(table_job, "open_encoded", None)
        for out in ("people.csv", "people.csv/deeper/still"):
            assert f"{people_csv} is a file; name a folder" in ask(out=out).message
        done = ask(out="full")
        assert (done.code, done.out) == (2, "")
        assert "is not empty" in done.message
        assert "--force" in done.message
        assert names(tmp_path / "full") == {"thesis.txt"}
        patch.setattr(os, "access", lambda path, flags: False)
        refused(ask(), tmp_path / "o", "cannot be written to | another folder")
    # An empty folder is as good as none.
    (tmp_path / "empty").mkdir()
    assert ask(out="empty").code == 0
    assert names(tmp_path / "empty") == RESULTS


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder that cannot be written to"
)
def test_a_folder_that_cannot_be_made_is_refused(ask):
    done = ask(out="/proc/expost/report")
    refused(done, Path("/proc/expost"), "out='/proc/expost/report' | cannot be written to")


def test_a_full_disk_is_one_sentence_and_leaves_whole_files_only(ask, tmp_path):
    out = tmp_path / "deep" / "report"
    with room_for(500):
        done = ask("--id number", out="deep/report")
    refused(done, tmp_path / "deep", "cannot be written to | free some space")
    # Room for the model, and for no profile: it is there, and is not drawn again.
    with room_for(8_000):
        done = ask("--id number", out="deep/report")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "continue with --resume" in done.message
    assert names(out) == {"model.json", LEDGER, "encoding.CURATOR-ONLY.json", RUN}
    assert ask("--id number --model", out / "model.json").code == 0
    before = (out / "model.json").read_bytes()
    assert ask("--id number --resume", out="deep/report").code == 0
    assert (out / "model.json").read_bytes() == before


# What simply works -----------------------------------------------------------------------------


def simple(cells, rows: int = 24, header: str = "a,b,income") -> str:
    rng = np.random.default_rng(1)
    lines = [cells(row, f"{rng.normal():.3f}") for row in range(rows)]
    return header + "\n" + "".join(line + "\n" for line in lines)


HOSTILE = "<script>alert(1)</script>"
WORKS = {
    "labels 9 and 10": simple(lambda i, x: f"{x},{i % 5},{9 + i % 2}"),
    "constant columns": simple(lambda i, x: f"{x},same,{'xy'[i % 2]}"),
    "hostile names": simple(
        lambda i, x: f"{HOSTILE}{i % 3},{x},{'xy'[i % 2]}", header=f'{HOSTILE},"a ""b"", \'c\' ; d",income'
    ),
    "two rows": "a,b,income\n1,2,x\n2,1,y\n",
    "more features than rows": simple(
        lambda i, x: ",".join(str((i * j) % 97) for j in range(1, 31)) + f",{'xy'[i % 2]}",
        rows=6, header=",".join(f"f{j}" for j in range(1, 31)) + ",income",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WORKS)
def test_this_simply_works(ask, tmp_path, case):
    path = tmp_path / "table.csv"
    path.write_bytes(WORKS[case].encode())
    done = ask(data=path)
    assert (done.code, done.err) == (0, "")
    assert names(tmp_path / "o") == RESULTS
    rows, model = rows_of(tmp_path / "o"), model_of(tmp_path / "o")
    lines = csv.reader(WORKS[case].splitlines(keepends=True))
    assert len(rows["loss"]) == sum(1 for line in lines if line) - 1
    assert np.all(np.isfinite(rows["loss"]))
    # The encoding and the model agree on which class counts as +1.
    assert model["classes"] == model["encoding"]["target"]["classes"] == sorted(model["classes"])
    page = (tmp_path / "o" / "report.CURATOR-ONLY.html").read_text()
    assert HOSTILE not in page
    assert (HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in page) == (case == "hostile names")
    assert ("is constant, so it is left out" in done.out) == (case == "constant columns")


@pytest.mark.parametrize("kind", ["csv.gz", "part*.parquet"])
def test_every_kind_of_file_gives_the_same_model(ask, tmp_path, kind):
    """θ depends on the rows alone: with the same seed each kind of file gives the very same."""
    table = [[cell.replace("?", "") for cell in line] for line in people()]
    plain, source = tmp_path / "plain.csv", tmp_path / f"table.{kind}"
    plain.write_text(text(table))
    if kind == "csv.gz":
        source.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        source = tmp_path / kind
        for number, lines in enumerate((table[1:31], table[31:])):
            part = tmp_path / f"part{number}.csv"
            part.write_text(text([table[0], *lines]))
            pq.write_table(arrow_of(part), part.with_suffix(".parquet"))
    for out, path in (("a", plain), ("b", source)):
        done = ask("--id number --seed 1 --ledger", tmp_path / "all.json", data=path, out=out)
        assert done.code == 0, done.err
    assert SEEDED in done.out
    assert model_of(tmp_path / "a") == model_of(tmp_path / "b")
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


def arrow_of(path: Path) -> pa.Table:
    types = {"smoker": pa.bool_(), "age": pa.int16()}
    options = pa.csv.ConvertOptions(strings_can_be_null=True, column_types=types)
    return pa.csv.read_csv(path, convert_options=options)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_go_through_the_same_job(ask, tmp_path, library):
    assert ask("--id number --seed 1", out="a").code == 0
    columns = {column[0]: list(column[1:]) for column in zip(*people(), strict=True)}
    columns["age"] = [int(cell) for cell in columns["age"]]
    columns["hours"] = [None if cell == "?" else float(cell) for cell in columns["hours"]]
    columns["smoker"] = [cell == "true" for cell in columns["smoker"]]
    if library == "pandas":
        frame = pd.DataFrame(columns).astype({"city": "category", "age": "int8"})
    else:
        frame = pl.DataFrame(columns).with_columns(pl.col("city").cast(pl.Categorical))
    job = ProfileRequest(
        source=frame, target="income", out=tmp_path / "b", name="frame", id_column="number", seed=1
    )
    outcome = run(job)
    assert rows_of(tmp_path / "b") == rows_of(tmp_path / "a")
    assert set(outcome.files) == {
        *("model", "ledger", "encoding", "profile", "table", "summary", "report")
    }
    assert all(path.exists() for path in outcome.files.values())


def test_a_regression(ask, tmp_path):
    arguments = "--loss squared --id number"
    done = ask(f"{arguments} --label-range 0,80 --epsilon inf", target="age")
    assert done.code == 0, done.err
    assert model_of(tmp_path / "o")["label_scale"] == {"centre": 40.0, "scale": 40.0, "bound": 1.0}
    assert settings_in(tmp_path / "o")["label_range"] == ("0 to 80", "given")
    released, base, *_ = accuracies(page_in(tmp_path / "o").get("profile"), "R²")
    assert base == 0 < released < 1
    # A bound that is not given is read, and the page states it.
    done = ask(arguments, target="age", out="p")
    value, origin = settings_in(tmp_path / "p")["label_range"]
    assert re.fullmatch(r"\d+ to \d+", value)
    assert origin == "read from the data"
    assert "label_range" in str(model_of(tmp_path / "p")["read_from_data"])


def test_gaussian_noise_the_hinge_dropped_columns_and_missing_tokens(ask, tmp_path):
    # A column that is dropped is not even looked at.
    table = [[*line[:-1], "1e300", line[-1]] for line in people()]
    table[0][-2] = "wild"
    path = tmp_path / "wild.csv"
    path.write_text(text(table).replace("?", "NA"))
    done = ask(
        "--id number --noise gaussian --delta 1e-6 --loss huber-hinge --regularization 0.1 --json-curator"
        " --drop wild --drop city --missing NA --missing - --classes >50K,<=50K",
        data=path,
    )
    assert (done.code, done.err) == (0, "")
    model = model_of(tmp_path / "o")
    assert (model["mechanism"]["noise"], model["mechanism"]["delta"]) == ("gaussian", 1e-6)
    assert model["loss"]["name"] == "huber-hinge"
    assert list(model["encoding"]["columns"]) == ["age", "smoker", "hours"]
    assert model["encoding"]["missing"] == ["NA", "-"]
    assert "hours is missing" in model["feature_names"]
    page = parse_json(json.dumps(json.loads(done.out)["summary"]))
    assert page == page_in(tmp_path / "o")
    chosen = settings_in(tmp_path / "o")
    assert chosen["delta"] == ("1e-06", "given")
    assert chosen["regularization"] == ("0.1", "given")
    assert chosen["classes"] == ("<=50K, >50K", "given")
    assert chosen["dropped columns"] == ("'wild', 'city'", "given")
    assert chosen["missing cells"] == ("'NA', '-'", "given")
    # The model knows which columns it reads.
    assert ask("--model", tmp_path / "o" / "model.json", data=path, out="p").code == 0


def test_a_key_that_was_not_named_as_one_is_noticed(ask):
    done = ask()
    assert done.code == 0
    notice = "column 'number': has a level for most rows; if it is a key, name it with --id"
    assert notice in done.out
    assert "column 'city'" not in done.out


def test_a_column_that_numbers_the_rows_is_noticed(ask, tmp_path):
    rng = np.random.default_rng(3)
    numbers, others = rng.permutation(60) + 7, rng.integers(0, 60, 60)
    path = tmp_path / "table.csv"
    lines = [f"{n},{o},{'yn'[o % 2]}" for n, o in zip(numbers, others, strict=True)]
    path.write_text("code,age,income\n" + "\n".join(lines) + "\n")
    done = ask(data=path)
    assert done.code == 0, done.err
    assert "column 'code': numbers the rows; if it is a key, name it with --id" in done.out
    assert "column 'age'" not in done.out


@pytest.mark.parametrize(("labels", "noticed"), [(10, False), (11, True)])
def test_a_target_of_many_numbers_is_noticed(ask, tmp_path, labels, noticed):
    path = tmp_path / "table.csv"
    lines = [f"{i * 7 % 13},{i % labels}" for i in range(90)]
    path.write_text("age,income\n" + "\n".join(lines) + "\n")
    done = ask("--mechanism objective", data=path)
    assert done.code == 0, done.err
    notice = f"target 'income': its {labels} numbers are taken for classes"
    assert (notice in " ".join(done.out.split())) == noticed


def test_ids_and_names_cannot_steer_the_terminal(ask, tmp_path):
    path = tmp_path / "table.csv"
    lines = [f'"p\x1b[2J{i}",{i % 7},"l\x1b]0;x\x07{i % 2}",{"xy"[i % 2]}' for i in range(20)]
    path.write_text("key,a,b,income\n" + "\n".join(lines) + "\n")
    done = ask("--id key", data=path)
    assert done.code == 0, done.err
    assert not {"\x1b", "\x07"} & set(done.out)
    assert rows_of(tmp_path / "o")["id"][3] == "p\x1b[2J3"


# Terminals -------------------------------------------------------------------------------------


def test_a_terminal_without_greek_does_not_cost_the_result(ask, monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert ask().code == 0
    sys.stdout.flush()
    # Signs that it does not have are written by their numbers.
    assert b"\\u03b5 = 1" in shown.getvalue()


# Help and start-up -----------------------------------------------------------------------------


def test_the_version_and_the_bare_program(program):
    assert re.fullmatch(r"expost \d+\.\d+\.\d+\n", program("--version").out)
    bare = program()
    assert re.search(r"Usage: .*expost", bare.out + bare.err)


def test_the_page_of_the_command_line_knows_every_option(program):
    page = (Path(__file__).parent.parent / "docs" / "cli.md").read_text()
    commands = [[], *([command.name] for command in app.registered_commands)]
    helped = "".join(program(*command, "--help").out for command in commands)
    option = r"(?<![\w-])--[a-z]+(?:-[a-z]+)*"
    assert set(re.findall(option, page)) == set(re.findall(option, helped))


def test_help_imports_no_numerics():
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM), "--help"])
    assert done.code == 0
    heavy = {"numpy", "scipy", "sklearn", "pyarrow", "jinja2", "dp_accounting", "pandas"}
    assert "typer" in imported(done)
    assert not imported(done) & heavy
