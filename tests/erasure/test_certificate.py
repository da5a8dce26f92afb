"""The certificate of an erasure: what it holds, what its page shows, and what neither may hold."""

import json
import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

import expost
from erasure.runs import MODELS, ROWS, make_model, table, without, write
from expost.erasure import Certificate, Erasure, Record
from expost.errors import InvalidInput
from expost.files.sealed import checksum
from expost.jobs import forget as job
from expost.ledger import Ledger
from expost.release import Release
from expost.report import document_of, parse_json, render_markdown
from expost.risk import EpsilonDelta
from expost.types import Audience
from program import listed

KEYS = [line[0] for line in table()[1:]]
ERASED = (KEYS[17], KEYS[3])
PUBLIC = ("model.json", "certificate.json", "certificate.html", "certificate.md", "summary.json")
# Coins that decide, whatever the loss is.
FATES = {"kept": 57.1828182845904, "redrawn": -31.4159265358979}
# Digits by which a figure is recognised: by chance in one of 10⁷ runs.
DIGITS = 10


@pytest.fixture
def people_csv(tmp_path):
    return write(tmp_path / "people.csv", table())


@pytest.fixture
def forget(program, people_csv, tmp_path):
    def call(model, *more, out="o", remove=ERASED):
        keys = [word for key in remove for word in ("--remove", key)]
        given = (people_csv, "--model", model, "--id", "number", *keys, "--out", tmp_path / out)
        return program("forget", *given, *more)

    return call


@pytest.fixture(scope="module")
def erasure() -> Erasure:
    """Of rows in memory, by a coupling."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 3)) / 4
    y = np.where(X[:, 0] + 0.2 * rng.normal(size=80) > 0, "yes", "no")
    model = expost.PrivateLogisticRegression(
        epsilon=2.0, data_norm=1.0, classes=["no", "yes"], mechanism="objective"
    ).fit(X, y)
    return expost.forget(model, X, y, remove=[7], fresh=False, requests_independent=True)


# -- canaries --------------------------------------------------------------------------------------


def figures_of(record: Record) -> set[str]:
    """The curator's figures as texts would hold them: their first digits."""
    assert record.coin is not None
    assert record.loss is not None
    assert record.keeping is not None
    # 0, 1 and small integers occur everywhere.
    numbers = [record.coin, *record.loss, *record.keeping, record.seconds]
    return {digits(value) for value in numbers if abs(value) not in (0.0, 1.0)}


def digits(value: float) -> str:
    """The first significant digits."""
    return "".join(map(str, Decimal(repr(abs(value))).as_tuple().digits))[:DIGITS]


def numbers_in(text: str) -> set[str]:
    """The first significant digits of every number in a text."""
    runs = re.findall(r"\d[\d.,]*(?:e[+-]?\d+)?", text)
    return {re.sub("e.*|[.,]", "", run).lstrip("0")[:DIGITS] for run in runs}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("name", ["output gaussian", "objective gaussian"])
def test_nothing_public_holds_a_canary(forget, people_csv, tmp_path, monkeypatch, name, fate):
    """Neither keys nor figures of the fate are in a public file, on stdout or in --json."""
    monkeypatch.setattr(job, "exponentials", lambda count: np.full(count, FATES[fate]))
    for flag, out in ((), "o"), (("--json",), "p"):
        path = make_model(people_csv, tmp_path / f"{out}-model", name)
        remove = ERASED if out == "o" else ERASED[:1]
        done = forget(path, "--requests-independent", *flag, out=out, remove=remove)
        assert done.code == 0, done.err
        record = Record.load(tmp_path / out / "erasure.CURATOR-ONLY.json")
        assert record.is_kept is (fate == "kept")
        texts = {"stdout": done.out, "stderr": done.err}
        texts |= {file: (tmp_path / out / file).read_text() for file in PUBLIC}
        canaries = figures_of(record)
        assert len(canaries) >= 3
        for where, text in texts.items():
            assert not any(key in text for key in KEYS), where
            assert not canaries & numbers_in(text), where
            for word in ("is_kept", "tries", 'coin":', "seconds", 'keeping": ['):
                assert word not in text, (where, word)
    # Power: the search sees the record.
    content = (tmp_path / "p" / "erasure.CURATOR-ONLY.json").read_text()
    assert canaries <= numbers_in(content)
    assert KEYS[17] in people_csv.read_text()


@pytest.mark.parametrize("method", ["fresh", "coupled"])
def test_no_file_holds_the_keys(forget, people_csv, tmp_path, method):
    """Requests are kept as keyed hashes, in curator-only files too."""
    path = make_model(people_csv, tmp_path / "m")
    more = ("--requests-independent",) if method == "coupled" else ()
    assert forget(path, *more).code == 0
    for file in (*listed(tmp_path / "o"), tmp_path / "people.ledger.CURATOR-ONLY.json"):
        content = file.read_bytes()
        assert not any(key.encode() in content for key in ERASED), file


def test_the_page_is_the_same_whatever_the_fate(forget, people_csv, tmp_path, monkeypatch):
    """But for dates and checksums the public page shows constants alone."""
    path, pages = make_model(people_csv, tmp_path / "m"), []
    for fate, coin in FATES.items():
        monkeypatch.setattr(job, "exponentials", lambda count, coin=coin: np.full(count, coin))
        (tmp_path / "people.ledger.CURATOR-ONLY.json").unlink(missing_ok=True)
        assert forget(path, "--requests-independent", out=fate).code == 0
        text = (tmp_path / fate / "certificate.md").read_text()
        text = re.sub(r"[0-9a-f]{64}", "checksum", text)
        pages.append(re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?", "date", text))
    assert pages[0] == pages[1]


def test_the_progress_is_the_same_whatever_the_fate(forget, people_csv, tmp_path, monkeypatch):
    """Passes over blocks that depend on the number of draws are not reported."""
    path, events = make_model(people_csv, tmp_path / "m"), []
    for fate, coin in FATES.items():
        monkeypatch.setattr(job, "exponentials", lambda count, coin=coin: np.full(count, coin))
        (tmp_path / "people.ledger.CURATOR-ONLY.json").unlink(missing_ok=True)
        blocks = ("--engine", "local:2", "--log-json")
        done = forget(path, "--requests-independent", *blocks, out=fate)
        assert done.code == 0, done.err
        lines = [json.loads(line) for line in done.err.splitlines()]
        events.append([(line["event"], line.get("phase"), line.get("pass")) for line in lines])
    assert events[0] == events[1]
    assert [name for event, name, _ in events[0] if event == "phase"][-2:] == [
        "drawing the model", "writing the certificate",
    ]  # fmt: skip


# -- the document ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fresh", "coupled"])
@pytest.mark.parametrize("name", MODELS)
def test_the_page_states_what_a_person_needs(forget, people_csv, tmp_path, name, method):
    path = make_model(people_csv, tmp_path / "m", name)
    more = ("--requests-independent",) if method == "coupled" else ()
    assert forget(path, *more).code == 0
    certificate = Certificate.load(tmp_path / "o" / "certificate.json")
    page = (tmp_path / "o" / "certificate.md").read_text()
    words = " ".join(page.split())
    for sentence in certificate.limits:
        assert sentence in words
    for number in (ROWS, ROWS - 2, certificate.made[:10]):
        assert str(number) in words
    for digest in (certificate.before.sha256, certificate.after.sha256, certificate.request):
        assert digest in page
    assert certificate.data in page
    assert ("The curator declares" in words) is (method == "coupled")
    assert "release made without the erased rows" in words
    parsed = parse_json((tmp_path / "o" / "summary.json").read_text())
    assert parsed.audience is Audience.PUBLIC
    assert parsed.kinds == ("certificate",)


def test_bounds_are_rounded_to_the_safe_side(erasure):
    certificate = replace(
        erasure.certificate,
        total_variation=1.2341e-7,
        distance=5.5551e-9,
        mean_keeping=0.98769,
        charge=EpsilonDelta(epsilon=0.0, delta=0.012341),
        after=replace(erasure.certificate.after, epsilon=1.23401, delta=1.0001e-6),
    )
    text = render_markdown(document_of(certificate))
    for shown in ("1.24 × 10⁻⁷", "5.56 × 10⁻⁹", "98.7 %", "0.0124", "ε = 1.24", "1.01 × 10⁻⁶"):
        assert shown in text, shown
    chain = replace(certificate, charge=EpsilonDelta(epsilon=5.0001, delta=0.1), changes=2)
    assert "ε = 5.01, δ = 0.1 for all of them" in render_markdown(document_of(chain))
    without_guarantee = replace(certificate, charge=EpsilonDelta(epsilon=np.inf))
    assert "No guarantee covers both" in render_markdown(document_of(without_guarantee))


def test_the_record_is_for_the_curator(erasure):
    shown = str(erasure)
    assert document_of(erasure).audience is Audience.CURATOR_ONLY
    assert ("was kept" if erasure.is_kept else "was redrawn") in shown
    assert "probability of keeping it" in shown
    record = replace(erasure.record, stale_files=("a/b.json",), other_releases=("model x",))
    shown = str(replace(erasure, record=record))
    assert "a/b.json" in shown
    assert "model x" in shown
    for result in (erasure, erasure.certificate):
        assert "<section" in result._repr_html_()
    assert "probability of keeping it" not in str(erasure.certificate)


def test_the_model_shows_its_history(erasure):
    shown = str(erasure.release)
    assert "History" in shown
    assert erasure.release.history[0].request[:8] in shown


def test_constants_of_the_data_need_review_and_the_certificate_says_why(
    forget, program, people_csv, tmp_path
):
    done = program(
        "profile", people_csv, "--target", "income", "--id", "number", "--out", tmp_path / "e"
    )
    assert done.code == 0, done.err
    assert forget(tmp_path / "e" / "model.json").code == 0
    names = {path.name for path in listed(tmp_path / "o")}
    kinds = {("certificate", suffix) for suffix in ("json", "html", "md")}
    kinds |= {("summary", "json"), ("erasure", "json")}
    assert {Audience.NEEDS_REVIEW.file_name(*kind) for kind in kinds} <= names
    assert not names & {*PUBLIC} - {"model.json"}
    certificate = Certificate.load(tmp_path / "o" / "certificate.CURATOR-ONLY.json")
    assert certificate.audience is Audience.NEEDS_REVIEW
    read = Release.load(tmp_path / "e" / "model.json").read_from_data
    assert certificate.read_from_data == read
    assert read
    page = (tmp_path / "o" / "certificate.CURATOR-ONLY.md").read_text()
    assert "Constants of the model were read from the data" in page
    assert document_of(certificate).verdict.tone == "caution"
    assert "Given its constants" in page
    assert read[0] in page
    done = program("report", tmp_path / "o", "--public", "--out", tmp_path / "site")
    assert done.code == 2
    assert "nothing" in done.message or "not public" in done.message


def test_a_page_of_several_results_holds_the_certificate(forget, program, people_csv, tmp_path):
    path = make_model(people_csv, tmp_path / "m")
    assert forget(path).code == 0
    done = program("report", tmp_path / "o", "--public", "--out", tmp_path / "site")
    assert done.code == 0, done.err
    assert "Certificate of an erasure" in (tmp_path / "site" / "report.md").read_text()


# -- the files -------------------------------------------------------------------------------------


def test_an_edited_certificate_is_refused(erasure, tmp_path):
    paths = erasure.save(tmp_path)
    assert Certificate.load(paths["certificate"]) == erasure.certificate
    assert Record.load(paths["record"]) == erasure.record
    assert Release.load(paths["model"]).to_json() == erasure.release.to_json()
    value = json.loads(paths["certificate"].read_text())
    for name, other in (("total_variation", 0.0), ("made", "2020-01-01T00:00:00Z")):
        with pytest.raises(InvalidInput):
            Certificate.from_json({**value, name: other})
    # Also with a checksum of its own.
    for name, other in (
        ("total_variation", 2.0),
        ("method", "magic"),
        ("after", value["before"]),
        ("changes", 0),
        ("limits", []),
        ("charge", {"law": "gaussian", "mu": 1.0}),
    ):
        edited = {key: entry for key, entry in {**value, name: other}.items() if key != "sha256"}
        with pytest.raises(InvalidInput):
            Certificate.from_json({**edited, "sha256": checksum(edited)})


def test_the_keyed_hashes_need_the_key(forget, people_csv, tmp_path):
    """The same request and rows under another ledger's key have other hashes."""
    path = make_model(people_csv, tmp_path / "m")
    hashes = []
    for out in ("o", "p"):
        assert forget(path, out=out).code == 0
        certificate = Certificate.load(tmp_path / out / "certificate.json")
        hashes.append((certificate.request, certificate.data))
        (tmp_path / "people.ledger.CURATOR-ONLY.json").rename(tmp_path / f"{out}.json")
    assert not {*hashes[0]} & {*hashes[1]}


def test_the_curator_can_confirm_the_rows(forget, people_csv, tmp_path):
    """With the ledger's key the hash is that of the table without the rows."""
    from expost.erasure.plan import data_digest

    path = make_model(people_csv, tmp_path / "m")
    assert forget(path).code == 0
    certificate = Certificate.load(tmp_path / "o" / "certificate.json")
    after = Release.load(tmp_path / "o" / "model.json")
    fewer = without(people_csv, {*ERASED}, tmp_path / "fewer.csv")
    encoding = after.table_encoding
    encoded = encoding.encode_table(encoding.open(str(fewer)))
    labels = np.array(["<=50K", ">50K"])[(encoded.y > 0).astype(int)]
    rows = replace(after, encoding=None).objective(encoded.X, labels).rows
    key = Ledger.load(tmp_path / "people.ledger.CURATOR-ONLY.json").salt
    assert data_digest(key, rows) == certificate.data
