"""``expost encoding``: a template of public constants, what is missing, and the public model."""

import csv
import io
import json

import pytest

from expost.jobs import encoding as encoding_job
from expost.release import Release
from expost.types import Audience
from program import people, refused, text


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "people.csv"
    path.write_text(text(people()))
    return path


@pytest.fixture
def template(program, table, tmp_path):
    done = program("encoding", table, "--template", "--target", "income", "--id", "number")
    assert (done.code, done.err) == (0, "")
    return json.loads((tmp_path / "people.encoding.json").read_text())


def filled(value, table):
    """The template with constants of a code book."""
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    for name, column in value["columns"].items():
        cells = sorted({row[name] for row in rows} - {"", "?"})
        if column["kind"] == "numeric":
            column["range"] = [-1000, 1000]
            column["fill"] = 0
        else:
            column["levels"] = [*cells, "another"]
            column["missing_level"] = True
    value["target"]["classes"] = sorted({row["income"] for row in rows})
    return value


def test_the_template_names_columns_and_nothing_of_the_rows(template, table):
    assert template["target"] == {"column": "income", "classes": None}
    for column in template["columns"].values():
        assert column.get("range") is None
        assert column.get("levels") is None
    assert "number" not in template["columns"]


def test_a_filled_template_makes_a_public_model(program, template, table, tmp_path):
    path = tmp_path / "public.json"
    path.write_text(json.dumps(filled(template, table)))
    done = program("encoding", table, "--encoding", path, "--id", "number")
    assert done.code == 0
    assert "Nothing is missing" in done.out
    done = program(
        *("profile", table, "--target", "income", "--id", "number"),
        *("--encoding", path, "--out", tmp_path / "o"),
    )
    assert done.code == 0, done.err
    assert Release.load(tmp_path / "o" / "model.json").audience is Audience.PUBLIC


def test_what_is_missing_is_named(program, template, table, tmp_path):
    (name,) = list(template["columns"])[:1]
    value = filled(template, table)
    value["columns"][name] |= {"range": None, "levels": None}
    if value["columns"][name]["kind"] == "numeric":
        del value["columns"][name]["levels"]
    else:
        del value["columns"][name]["range"]
    path = tmp_path / "part.json"
    path.write_text(json.dumps(value))
    done = program("encoding", table, "--encoding", path, "--id", "number", "--json")
    assert list(json.loads(done.out)["missing"]) == [name]
    done = program(
        *("profile", table, "--target", "income", "--id", "number"),
        *("--encoding", path, "--out", tmp_path / "o"),
    )
    refused(done, tmp_path / "o", f"encoding | {name}")


def test_a_file_is_not_written_over(program, template, table, tmp_path):
    path = tmp_path / "people.encoding.json"
    path.write_text("mine")
    done = program("encoding", table, "--template")
    assert done.code == 2
    assert "--force" in done.message
    assert path.read_text() == "mine"
    assert program("encoding", table, "--template", "--force").code == 0
    assert path.read_text() != "mine"


def test_a_file_that_cannot_be_written_is_one_sentence(program, table, tmp_path, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied", str(tmp_path / ".x.part"))

    monkeypatch.setattr(encoding_job, "write_bytes", fail)
    done = program("encoding", table, "--template", "--target", "income")
    assert done.code == 2
    assert done.err == (
        "expost: out='people.encoding.json': cannot be written to (Permission denied); name"
        " another file.\n"
    )


@pytest.mark.parametrize("more", [(), ("--template", "--encoding", "x.json")])
def test_one_of_two_is_asked_for(program, table, more):
    done = program("encoding", table, *more)
    assert done.code == 2
    assert "--template" in done.message
