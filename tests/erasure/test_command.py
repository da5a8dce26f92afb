"""``expost forget`` as its users meet it."""

import json

import numpy as np
import pytest

from erasure.runs import MODELS, ROWS, make_model, table, without, write
from expost.erasure import Certificate, Record
from expost.erasure.certificate import OTHER_FOLDERS
from expost.jobs import forget as job
from expost.ledger import NAME, Ledger
from expost.mechanisms.publishing import PublishingBudget
from expost.release import Release
from program import listed, mode, names, refused

KEYS = [line[0] for line in table()[1:]]
FIRST, SECOND, THIRD = KEYS[17], KEYS[3], KEYS[101]
PUBLIC = {"model.json", "certificate.json", "certificate.html", "certificate.md", "summary.json"}
RESULTS = PUBLIC | {"erasure.CURATOR-ONLY.json", "ledger-path.CURATOR-ONLY.json"}
COUPLED = ("--requests-independent",)


@pytest.fixture
def people_csv(tmp_path):
    return write(tmp_path / "people.csv", table())


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "people.ledger.CURATOR-ONLY.json"


@pytest.fixture
def forget(program, people_csv, tmp_path):
    """Erase persons from a model; the results go to tmp_path/out."""

    def call(model, *more, data=people_csv, out="o", remove=(FIRST,), key="number"):
        keys = [word for person in remove for word in ("--remove", person)]
        given = (data, "--model", model, "--id", key, *keys, "--out", tmp_path / out)
        return program("forget", *given, *more)

    return call


def results(folder) -> tuple[Release, Certificate, Record]:
    return (
        Release.load(folder / "model.json"),
        Certificate.load(folder / "certificate.json"),
        Record.load(folder / "erasure.CURATOR-ONLY.json"),
    )


# -- end to end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), COUPLED], ids=["fresh", "coupled"])
@pytest.mark.parametrize("name", MODELS)
def test_every_mechanism_forgets(forget, program, people_csv, tmp_path, ledger, name, more):
    path = make_model(people_csv, tmp_path / "m", name)
    before, content = Release.load(path), path.read_bytes()
    done = forget(path, *more)
    assert done.code == 0, done.err
    out = tmp_path / "o"
    assert names(out) == RESULTS
    assert path.read_bytes() == content
    for file in listed(out):
        assert mode(file) == (0o644 if file.name in PUBLIC else 0o600), file
    after, certificate, record = results(out)
    # The number of rows has changed, and nothing else.
    assert after.mechanism.rows == ROWS - 1
    for constant in ("kind", "noise", "loss", "law", "grid"):
        assert getattr(after.mechanism, constant) == getattr(before.mechanism, constant)
    assert after.encoding == before.encoding
    (step,) = after.history
    method = "coupled" if more else "fresh"
    assert (step.method, step.rows) == (method, ROWS)
    assert step.model == before.to_json()["sha256"] == certificate.before.sha256
    assert certificate.after.sha256 == after.to_json()["sha256"]
    assert certificate.request == step.request
    assert (certificate.method, certificate.requests_independent) == (method, bool(more))
    assert record.certificate == certificate.to_json()["sha256"]
    assert record.is_kept is bool(np.array_equal(after.theta, before.theta))
    assert (record.coin is None) is (not more)
    assert certificate.total_variation == 0 if not more else 0 < certificate.total_variation < 1e-3
    # The ledger lists the model, and the erasure by its request.
    entries = Ledger.load(ledger).entries
    assert [entry.kind for entry in entries] == ["model", "erasure"]
    assert entries[1].release == step.request
    assert entries[1].name == str(out / "model.json")
    assert len({entry.data for entry in entries}) == 2
    charge = entries[1].guarantee
    assert charge == (after.mechanism.guarantee(1) if not more else certificate.charge)
    # The model after belongs to the table without the rows.
    fewer = without(people_csv, {FIRST}, tmp_path / "fewer.csv")
    target = MODELS[name][0]
    given = ("--target", target, "--model", out / "model.json", "--id", "number")
    ledgers = ("--ledger", ledger)
    done = program("profile", fewer, *given, *ledgers, "--out", tmp_path / "p", "--json-curator")
    assert done.code == 0, done.err
    assert "was made from other rows" not in done.out
    refused(program("profile", people_csv, *given, "--out", tmp_path / "q"), tmp_path / "q", "rows")
    done = program("ledger", out, "--json-curator")
    value = json.loads(done.out)
    assert [line["kind"] for line in value["releases"]] == ["model", "erasure"]
    assert value["unlisted"] == 0


def test_a_person_with_many_rows_leaves_with_all_of_them(forget, tmp_path):
    data = write(tmp_path / "visits.csv", table(rows_per_person=4))
    path = make_model(data, tmp_path / "m", "output laplace")
    keys = tmp_path / "requests.txt"
    keys.write_text(f"{KEYS[2]}\n\n{KEYS[9]} \n{KEYS[2]}\n")
    done = forget(path, data=data, remove=(keys, KEYS[11]))
    assert done.code == 0, done.err
    after, certificate, _ = results(tmp_path / "o")
    assert after.mechanism.rows == ROWS - 12
    assert certificate.changed == 12
    assert certificate.after.epsilon == pytest.approx(certificate.before.epsilon * 120 / 108)


def test_a_sequence_of_three(forget, people_csv, tmp_path, ledger):
    model, data, gone = make_model(people_csv, tmp_path / "m"), people_csv, set()
    for number, key in enumerate((FIRST, SECOND, THIRD), 1):
        done = forget(model, *COUPLED, data=data, out=str(number), remove=(key,))
        assert done.code == 0, done.err
        gone.add(key)
        # The ledger of the first table is found through the folder of the model.
        data = without(people_csv, gone, tmp_path / f"without-{number}.csv")
        model = tmp_path / str(number) / "model.json"
    after, certificate, record = results(tmp_path / "3")
    assert [step.rows for step in after.history] == [ROWS, ROWS - 1, ROWS - 2]
    assert after.coupled_rows == (ROWS, ROWS - 1, ROWS - 2, ROWS - 3)
    assert certificate.changes == 3
    entries = Ledger.load(ledger).entries
    assert [entry.rows for entry in entries] == [ROWS, ROWS - 1, ROWS - 2, ROWS - 3]
    # The models before the present one are named as not erased.
    assert [line.split()[0] for line in record.other_releases] == ["model", "erasure"]
    assert str(tmp_path / "2" / "model.json") in record.stale_files


@pytest.mark.parametrize("more", [(), COUPLED], ids=["fresh", "coupled"])
def test_rows_enter(program, people_csv, tmp_path, more):
    fewer = without(people_csv, {FIRST, SECOND}, tmp_path / "fewer.csv")
    path = make_model(fewer, tmp_path / "m", "output gaussian")
    given = ("--model", path, "--id", "number", "--insert", FIRST, "--insert", SECOND)
    done = program("forget", people_csv, *given, *more, "--out", tmp_path / "o")
    assert done.code == 0, done.err
    after, certificate, record = results(tmp_path / "o")
    assert after.mechanism.rows == ROWS
    assert certificate.is_insertion
    assert record.stale_files == ()
    assert "Certificate of an insertion" in done.out
    assert "Delete" not in done.out
    done = program(
        "profile", people_csv, "--target", "income", "--model", tmp_path / "o" / "model.json",
        "--out", tmp_path / "p",
    )  # fmt: skip
    assert done.code == 0, done.err


@pytest.mark.parametrize("name", MODELS)
def test_blocks_give_the_figures_of_memory(forget, people_csv, tmp_path, name, monkeypatch):
    path = make_model(people_csv, tmp_path / "m", name)
    monkeypatch.setattr(job, "exponentials", lambda count: np.full(count, 50.0))
    known = {}
    for engine in ((), ("--engine", "local:2")):
        out = "-".join(("o", *engine)).replace(":", "")
        ledger = tmp_path / f"{out}.CURATOR-ONLY.json"
        # The same key, so that the hashes can be compared.
        ledger.write_text(json.dumps(Ledger(salt="ab" * 32).to_json()))
        # Without the table's own ledger, which would refuse the second request.
        (tmp_path / "people.ledger.CURATOR-ONLY.json").unlink(missing_ok=True)
        done = forget(path, *COUPLED, "--ledger", ledger, *engine, out=out)
        assert done.code == 0, done.err
        after, certificate, record = results(tmp_path / out)
        assert record.is_kept
        fields = certificate.content()
        known[out] = (
            json.dumps({name: fields[name] for name in fields if name != "made"}),
            json.dumps(after.to_json()),
            json.dumps(Ledger.load(ledger).entries[-1].guarantee.to_json()),
        )
        # Output perturbation compares a random point of the grid's cell.
        if not name.startswith("output"):
            known[out] += (json.dumps(record.loss),)
    first, second = known.values()
    assert first == second


# -- which method ----------------------------------------------------------------------------------


def test_a_model_is_kept_only_if_requests_are_declared_independent(forget, people_csv, tmp_path):
    path = make_model(people_csv, tmp_path / "m")
    refused(forget(path, "--no-fresh"), tmp_path / "o", "--requests-independent")
    assert forget(path, "--fresh", *COUPLED).code == 0
    assert results(tmp_path / "o")[1].method == "fresh"


def test_a_report_makes_the_redraw_the_default(forget, program, people_csv, tmp_path):
    budget = PublishingBudget(epsilon_gradient=0.7, epsilon_hessian=0.3, delta=1e-6)
    options = {"regularization": "for-publishing", "publishing": budget, "delta": 1e-6}
    path = make_model(people_csv, tmp_path / "m", **options)
    spent = ("--kind", "data-dependent", "--epsilon-gradient", 0.7, "--epsilon-hessian", 0.3)
    done = program("publish", people_csv, "--model", path, *spent, "--out", tmp_path / "r")
    assert done.code == 0, done.err
    assert forget(path, *COUPLED).code == 0
    _, certificate, record = results(tmp_path / "o")
    assert certificate.method == "fresh"
    (other,) = record.other_releases
    assert other.startswith("report ")
    assert other.endswith(str(tmp_path / "r" / "report.json"))
    # Its comparison holds the rows of everybody.
    assert str(tmp_path / "r" / "comparison.CURATOR-ONLY.parquet") in record.stale_files
    assert forget(path, *COUPLED, "--no-fresh", out="p", remove=(SECOND,)).code == 0
    assert results(tmp_path / "p")[1].method == "coupled"


def test_a_report_that_spends_nothing_counts_too(forget, program, people_csv, tmp_path):
    path = make_model(people_csv, tmp_path / "m")
    # In the folder of the model: no ledger lists it.
    assert program("publish", "--model", path, "--out", tmp_path / "r").code == 0
    (tmp_path / "m" / "report.json").write_bytes((tmp_path / "r" / "report.json").read_bytes())
    assert forget(path, *COUPLED).code == 0
    assert results(tmp_path / "o")[1].method == "fresh"


# -- what is refused -------------------------------------------------------------------------------


def test_a_person_who_is_not_in_the_data_gets_no_certificate(forget, people_csv, tmp_path, ledger):
    path = make_model(people_csv, tmp_path / "m")
    for engine in ((), ("--engine", "local:2")):
        done = forget(path, *engine, remove=(FIRST, "kanarie-90210"))
        refused(done, tmp_path / "o", "1 of 2 persons have no row")
        assert FIRST not in done.err
    assert not ledger.exists()
    assert not (tmp_path / "m" / NAME).exists()


def test_the_same_request_is_not_answered_twice(forget, people_csv, tmp_path, ledger):
    path = make_model(people_csv, tmp_path / "m")
    assert forget(path, *COUPLED, remove=(FIRST, SECOND)).code == 0
    content = ledger.read_bytes()
    again = (forget(path, *more, out="p", remove=(SECOND, FIRST)) for more in (COUPLED, ()))
    for done in again:
        refused(done, tmp_path / "p", "not tossed a second time")
        assert FIRST not in done.err
    # Nor with another ledger, as long as the one of the table is there.
    done = forget(path, "--ledger", tmp_path / "other.json", out="p", remove=(SECOND, FIRST))
    refused(done, tmp_path / "p", "not tossed a second time")
    assert ledger.read_bytes() == content
    # Another request is another one.
    assert forget(path, out="p").code == 0
    done = forget(path, "--resume", out="p")
    assert "this run is finished" in done.out + done.err


def test_a_model_is_coupled_once(forget, people_csv, tmp_path, ledger):
    path = make_model(people_csv, tmp_path / "m")
    assert forget(path, *COUPLED).code == 0
    content = ledger.read_bytes()
    done = forget(path, *COUPLED, out="p", remove=(SECOND,))
    refused(done, tmp_path / "p", "kept or redrawn once")
    assert ledger.read_bytes() == content
    # Further requests go to the model after; a model that is drawn again depends on no other.
    fewer = without(people_csv, {FIRST}, tmp_path / "fewer.csv")
    after = tmp_path / "o" / "model.json"
    assert forget(after, *COUPLED, data=fewer, out="p", remove=(SECOND,)).code == 0
    assert forget(path, out="q", remove=(SECOND,)).code == 0


def test_models_that_cannot_be_erased_from_are_refused(
    forget, program, people_csv, tmp_path, ledger
):
    profile = ("profile", people_csv, "--target", "income", "--id", "number", "--drop", "city")
    for more, words in (
        (("--seed", 1), "a seed (random_state)"),
        (("--epsilon", "inf"), "without noise"),
    ):
        out = tmp_path / words[:6]
        assert program(*profile, *more, "--out", out).code == 0
        content = ledger.read_bytes()
        refused(forget(out / "model.json"), tmp_path / "o", words)
        assert ledger.read_bytes() == content


def test_a_model_with_a_private_encoding_is_refused(forget, program, people_csv, tmp_path):
    levels = {name: {"kind": "levels"} for name in ("city", "smoker")}
    ranges = {"columns": {"age": {"range": [0, 100]}, "hours": {"range": [0, 80]}, **levels}}
    given = tmp_path / "ranges.json"
    given.write_text(json.dumps({**ranges, "target": {"classes": ["<=50K", ">50K"]}}))
    done = program(
        "profile", people_csv, "--target", "income", "--id", "number", "--encoding", given,
        "--private-encoding", "--out", tmp_path / "e",
    )  # fmt: skip
    assert done.code == 0, done.err
    refused(forget(tmp_path / "e" / "model.json"), tmp_path / "o", "released from the rows too")


@pytest.mark.parametrize(
    ("more", "key", "words"),
    [
        (("--insert", SECOND), "number", "name persons who leave, or persons who enter"),
        ((), "age", "is a feature of the model"),
        (("--target", "city"), "number", "the model predicts 'income'"),
        ((), "nothing", "nothing"),
    ],
)
def test_wrong_options_are_refused(forget, people_csv, tmp_path, ledger, more, key, words):
    path = make_model(people_csv, tmp_path / "m")
    refused(forget(path, *more, key=key), tmp_path / "o", words)
    assert not ledger.exists()


def test_other_rows_are_refused(forget, people_csv, tmp_path, ledger):
    path = make_model(people_csv, tmp_path / "m")
    fewer = without(people_csv, {SECOND}, tmp_path / "fewer.csv")
    refused(forget(path, data=fewer), tmp_path / "o", "119 rows | made from 120")
    assert not ledger.exists()


def test_the_folder_of_the_old_model_is_not_written_to(forget, people_csv, tmp_path):
    path = make_model(people_csv, tmp_path / "m")
    content = path.read_bytes()
    for more in ((), ("--force",)):
        assert forget(path, *more, out="m").code == 2
    assert path.read_bytes() == content


# -- what the curator is told ----------------------------------------------------------------------


def test_earlier_results_are_listed_and_not_deleted(forget, program, people_csv, tmp_path):
    done = program(
        "profile", people_csv, "--target", "income", "--id", "number", "--drop", "city",
        "--out", tmp_path / "e",
    )  # fmt: skip
    assert done.code == 0, done.err
    before = names(tmp_path / "e")
    done = forget(tmp_path / "e" / "model.json")
    assert done.code == 0, done.err
    assert names(tmp_path / "e") == before
    record = Record.load(tmp_path / "o" / "erasure.CURATOR-ONLY.json")
    stale = {tmp_path / "e" / name for name in before} - {
        tmp_path / "e" / "ledger-path.CURATOR-ONLY.json"
    }
    assert {*record.stale_files} == {*map(str, stale)}
    assert "profile.CURATOR-ONLY.parquet" in done.out
    assert "encoding.CURATOR-ONLY.json" in done.out
    assert "Delete the rows from the table itself." in done.out
    # A command that releases nothing is in no ledger, so that its folder is not known.
    assert OTHER_FOLDERS in done.out


def test_for_machines(forget, people_csv, tmp_path):
    path = make_model(people_csv, tmp_path / "m")
    other = make_model(people_csv, tmp_path / "n")
    value = json.loads(forget(path, *COUPLED, "--json").out)
    assert value["n"] == ROWS - 1
    assert value["n_before"] == ROWS
    assert value["method"] == "coupled"
    assert "record" not in value
    value = json.loads(forget(other, *COUPLED, "--json-curator", out="p").out)
    assert value["record"]["coin"] > 0
    assert value["certificate"]["audience"] == "public"
    _, certificate, record = results(tmp_path / "p")
    assert value["record"] == record.to_json()
    assert value["certificate"] == certificate.to_json()
    assert {*value["files"]} == {
        "model", "certificate", "record", "page", "text", "summary", "ledger",
    }  # fmt: skip
