"""A thousand planted values, none of which is found in anything that may leave the building.

A canary is a number (or a name) that occurs nowhere but in the rows. It counts as found if it
occurs as decimal digits, as the bytes of a float of any width and order, or after the encoding
that the rows go through (divided by the data norm, squared into a norm).
"""

import contextlib
import gc
import io
import json
import pickle
import pickletools
import re
import sqlite3
import sys
import traceback
import types
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

import expost
from expost import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from expost.cli.main import main
from expost.data import Encoding, UnitBall, open_table
from expost.errors import ClippedRowsWarning, InvalidInput
from expost.glm import Objective, minimise
from expost.jobs.ledger import ledger_in
from expost.mechanisms import OutputPerturbation
from expost.release import Release
from expost.types import Audience
from program import listed
from settings import OUTPUT

ROWS, COLUMNS, NORM = 250, 4, 8000.0
RNG = np.random.default_rng(20_000)
# Twelve random digits each: no other number of the test comes near one of them.
CANARIES = RNG.integers(10**11, 10**12, size=(ROWS, COLUMNS)) / 10**9
X = CANARIES * RNG.choice([-1.0, 1.0], size=CANARIES.shape)
NAMES = [f"canary-{value:x}" for value in RNG.integers(2**60, size=ROWS)]
LABELS = np.where(X[:, 0] + 300 * RNG.normal(size=ROWS) > 0, "yes", "no")
TARGET = RNG.integers(10**11, 10**12, size=ROWS) / 10**13

MODELS = {
    "logistic": (PrivateLogisticRegression(data_norm=NORM, classes=["no", "yes"]), LABELS),
    "output": (
        PrivateLogisticRegression(**OUTPUT, data_norm=NORM, classes=["no", "yes"]),
        LABELS,
    ),
    "gaussian": (
        PrivateLogisticRegression(
            mechanism="output", noise="gaussian", data_norm=NORM, classes=["no", "yes"]
        ),
        LABELS,
    ),
    "svc": (PrivateLinearSVC(data_norm=NORM, classes=["no", "yes"]), LABELS),
    "ridge": (PrivateRidge(data_norm=NORM, label_range=(-0.2, 0.2), huber_width=None), TARGET),
    "clipped": (PrivateRidge(data_norm=700.0, label_range=(-0.03, 0.03), huber_width=None), TARGET),
}


def fitted(name):
    model, y = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedRowsWarning)
        return type(model)(**model.get_params()).fit(X, y)


def planted():
    """Every canary number, as it stands and as the rows hold it."""
    values = [X, np.abs(X), TARGET, np.linalg.norm(X, axis=1)]
    for norm in (NORM, 700.0):
        for intercept in (True, False):
            rows, _ = UnitBall(data_norm=norm, fit_intercept=intercept).rows(X)
            values += [rows[:, :COLUMNS], X / norm]
    return np.unique(np.concatenate([np.ravel(part) for part in values]))


PLANTED = planted()


# Random numbers of a release must not look like a canary by chance (1e-7 for each at 12 digits);
# errors hold no random numbers, so that eight are enough to tell there.
RELEASED, SAID = 12, 8


def digits(value, count):
    """That many significant digits, cut and rounded: a decimal that begins with them shows it."""
    for mantissa in (f"{abs(value):.15e}", f"{abs(value):.{count - 1}e}"):
        yield mantissa[0] + mantissa[2 : count + 1]


DIGITS = {
    count: {result for value in PLANTED for result in digits(value, count)}
    for count in (RELEASED, SAID)
}
BYTES = {np.array(value, dtype=kind).tobytes() for value in PLANTED for kind in ("<f8", ">f8")}
# The upper six bytes of a double: also of one that was changed in its last digits.
HEADS = {np.array(value, dtype="<f8").tobytes()[2:] for value in PLANTED}


def found_in_text(text, count=RELEASED):
    """Planted numbers and names in a text."""
    bare = (run.replace(".", "").lstrip("0") for run in re.findall(r"\d[\d.]{6,}", text))
    numbers = {run[:count] for run in bare if len(run) >= count} & DIGITS[count]
    return numbers | {name for name in NAMES if name in text}


def found_in_bytes(content):
    """Planted numbers and names in a binary."""
    windows = {content[at : at + 8] for at in range(len(content) - 7)}
    heads = {content[at : at + 6] for at in range(len(content) - 5)}
    text = content.decode("latin-1")
    wide = content.decode("utf-16-le", errors="replace")
    names = {name for name in NAMES if name in text or name in wide}
    return (windows & BYTES) | (heads & HEADS) | names | found_in_text(text)


def test_the_search_finds_what_is_there():
    """Power: a canary in any of the forms is seen."""
    value = X[17, 2]
    for text in (f"{value}", f"{value!r}", f"x={value:.11e}!", str(X[16:18].tolist())):
        assert found_in_text(text), text
    for text in (f"{value:.7e}", f"{value:.8f}", f"array({X[16:18]})"):
        assert found_in_text(text, SAID), text
    scaled = UnitBall(data_norm=NORM, fit_intercept=True).rows(X)[0][3, 1]
    assert found_in_text(repr(scaled))
    for content in (X.tobytes(), X[5:6].astype(">f8").tobytes(), pickle.dumps(X[3])):
        assert found_in_bytes(content)
    assert found_in_bytes(pickle.dumps({"a": float(value)}))
    assert found_in_bytes(f"{NAMES[4]}".encode("utf-16-le"))
    assert found_in_text(f"row {NAMES[9]}")
    assert not found_in_text("3.14159265358979 and 8000.0")
    assert not found_in_bytes(np.arange(100.0).tobytes())
    assert len(DIGITS[RELEASED]) >= 1000


@pytest.mark.parametrize("name", MODELS)
def test_model_json(tmp_path, name):
    model = fitted(name)
    assert model.release_.audience is Audience.PUBLIC
    path = model.save(tmp_path / "model.json")
    assert not found_in_bytes(path.read_bytes())
    assert not found_in_text(repr(Release.load(path)))


@pytest.mark.parametrize("name", MODELS)
def test_texts_of_a_fitted_model(name):
    model = fitted(name)
    texts = [repr(model), str(model), model._repr_html_(), repr(model.release_)]
    texts += [repr(vars(model)), repr(model.get_params()), repr(model.release_.mechanism)]
    texts.append(model.release_._repr_html_())
    assert not found_in_text(" ".join(texts))


def walk(value, path="model", visited=None):
    """Every leaf of the object graph: (path, value)."""
    visited = set() if visited is None else visited
    if id(value) in visited:
        return
    if isinstance(value, np.ndarray | str | bytes | int | float | type(None) | np.generic | type):
        yield path, value
        return
    visited.add(id(value))
    if isinstance(value, dict):
        children = [(str(key), entry) for key, entry in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        children = [(str(index), entry) for index, entry in enumerate(value)]
    else:
        assert not isinstance(value, types.FunctionType | types.GeneratorType), path
        children = list(vars(value).items())
    for key, child in children:
        yield from walk(child, f"{path}.{key}", visited)


@pytest.mark.parametrize("name", MODELS)
def test_a_pickle_holds_theta_and_public_constants_alone(name):
    model = fitted(name)
    # The law and the grid are computed by now: they are kept, and are public.
    content = pickle.dumps(model)
    assert not found_in_bytes(content)
    loaded = pickle.loads(content)
    arrays = {path: leaf for path, leaf in walk(loaded) if isinstance(leaf, np.ndarray)}
    allowed = {
        "model.release_.theta",
        "model.release_.classes",
        "model.coef_",
        "model.intercept_",
        "model.classes_",
    }
    assert set(arrays) <= allowed
    dimension = COLUMNS + 1
    assert arrays["model.release_.theta"].shape == (dimension,)
    assert all(array.size <= dimension for array in arrays.values())
    numbers = [leaf for _, leaf in walk(loaded) if isinstance(leaf, float)]
    assert len(numbers) <= 40
    # What pickle itself holds: no long run of bytes but θ's and the coefficients'.
    longest = max(
        len(argument)
        for opcode, argument, _ in pickletools.genops(content)
        if isinstance(argument, bytes | bytearray)
    )
    assert longest <= 8 * dimension


def test_a_pickle_does_not_grow_with_the_rows():
    model, y = MODELS["logistic"]
    few = pickle.dumps(fitted("logistic"))
    many = type(model)(**model.get_params())
    many.fit(np.tile(X, (40, 1)), np.tile(y, 40))
    assert abs(len(pickle.dumps(many)) - len(few)) <= 64


@pytest.mark.parametrize("name", MODELS)
def test_neither_the_minimiser_nor_the_noise_is_kept(name, tmp_path):
    model, y = fitted(name), MODELS[name][1]
    problem = model.release_.problem(X, y)
    base = minimise(problem).theta
    theta = model.release_.theta
    factor = model.coef_.ravel() / theta[:COLUMNS]
    secrets = np.concatenate([base, theta - base, base[:COLUMNS] * factor])
    content = pickle.dumps(model)
    text = model.save(tmp_path / "model.json").read_text()
    for secret in secrets:
        assert np.float64(secret).tobytes() not in content
        assert repr(float(secret)) not in text
    for path, leaf in walk(model):
        if isinstance(leaf, float) or (isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"):
            assert not np.any(np.isin(leaf, secrets)), path


def test_minimise_is_not_left_on_the_estimator(monkeypatch):
    """Whatever minimise returned is garbage after fit: nothing refers to it."""
    import weakref

    import expost.glm

    kept = []

    def spy(problem, **options):
        solution = minimise(problem, **options)
        kept.extend([weakref.ref(solution), weakref.ref(solution.theta), weakref.ref(problem)])
        return solution

    monkeypatch.setattr(expost.glm, "minimise", spy)
    model = fitted("logistic")
    gc.collect()
    assert len(kept) == 3
    assert all(reference() is None for reference in kept)
    assert model.release_.theta.base is None


# Errors and warnings.


def text_cell(values):
    table = values.astype(object)
    table[7, 2] = NAMES[0]
    return table


def bad_features():
    frame = pd.DataFrame(X, columns=list("abcd"))
    yield "a name in a cell", text_cell(X)
    yield "a name in a frame", frame.assign(c=NAMES)
    yield (
        "a name in a polars frame",
        pl.DataFrame(X, schema=list("abcd")).with_columns(c=pl.Series(NAMES)),
    )
    yield "complex", X + 1j * X
    yield "one dimension", X[:, 0]
    yield "three dimensions", X[None]
    yield "NaN", np.where(X[3, 1] == X, np.nan, X)
    yield "infinity", np.where(X[3, 1] == X, np.inf, X)
    yield "huge", X * 1e300
    yield "ragged", [list(row) for row in X[:-1]] + [[1.0]]
    yield "missing", np.where(X[3, 1] == X, None, X.astype(object))
    yield "masked", np.ma.masked_array(X, X > 0)
    yield "sparse", scipy.sparse.csr_matrix(X)
    yield "narrow", X[:, :3]
    yield "few", X[:1]
    yield "short", X[:-1]
    yield "no columns", X[:, :0]
    yield "duplicate names", pd.DataFrame(X, columns=list("abca"))
    yield "number names", pd.DataFrame(X, columns=["a", 1, "c", 2.5])
    yield "text", X.astype(str)
    yield "objects", np.array([[object()] * COLUMNS] * ROWS)
    yield "dates", pd.DataFrame({"a": pd.date_range("2024", periods=ROWS)})
    yield "a list of names", NAMES
    yield "large integers", (X * 1e15).astype(np.int64)
    yield "None", None
    yield "dictionary", dict(zip(NAMES, X[:, 0], strict=True))


def bad_labels():
    yield "names", NAMES
    yield "numbers", TARGET
    yield "complex", TARGET + 1j
    yield "two columns", np.column_stack([TARGET, TARGET])
    yield "one class", np.full(ROWS, NAMES[0])
    yield "short", np.array(NAMES[:-1])
    yield "missing", np.array([*NAMES[:-1], None], dtype=object)
    yield "NaN", np.append(TARGET[:-1], np.nan)
    yield "mixed", np.array([*NAMES[:-1], 3.5], dtype=object)
    yield "infinity", np.append(TARGET[:-1], np.inf)
    yield "huge", TARGET * 1e300
    yield "scalar", TARGET[0]
    yield "None", None


def carried(error):
    """The texts of an error and of all that hang on it, displayed or not, as a logger finds them."""
    texts, pending, observed = [], [error], set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in observed:
            continue
        observed.add(id(current))
        texts += [
            str(current),
            repr(current),
            str(current.args),
            str(getattr(current, "__notes__", ())),
        ]
        texts += [str(value) for value in vars(current).values()]
        pending += [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
    return " ".join(texts)


def complaints(call):
    """All that a call says: its error with every error behind it, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:  # noqa: BLE001 (what is said is examined, whatever it is)
            output = "".join(traceback.format_exception(error)) + carried(error)
        else:
            output = ""
    return output + " ".join(str(entry.message) for entry in caught)


def test_a_leak_would_be_detected():
    """Power: scikit-learn's own estimators quote cells of the data."""
    for features in (text_cell(X), X + 1j * X, X[:, 0]):
        output = complaints(lambda rows=features: LogisticRegression().fit(rows, LABELS))
        assert found_in_text(output, SAID)


def quiet(call):
    """Run it, and find no canary in what it says; returns what it says."""
    output = complaints(call)
    assert not found_in_text(output, SAID), output[-600:]
    return output


@pytest.mark.parametrize("name", ["logistic", "svc", "ridge"])
@pytest.mark.parametrize(
    ("case", "features"), list(bad_features()), ids=[c for c, _ in bad_features()]
)
def test_errors_of_features(name, case, features):
    model, y = MODELS[name]
    output = quiet(lambda: type(model)(**model.get_params()).fit(features, y))
    # A narrow or a few-named table is a table like any other: only rows may be wrong with it.
    assert output or case in ("narrow", "number names")
    trained = fitted(name)
    quiet(lambda: trained.predict(features))
    quiet(lambda: expost.profile(trained, features, y))
    quiet(lambda: expost.profile(trained, X, y, relation="add", candidates=(features, y)))
    loss = "squared" if name == "ridge" else "logistic"
    quiet(lambda: expost.neighbours(features, y, loss=loss))


@pytest.mark.parametrize("name", ["logistic", "svc", "ridge"])
@pytest.mark.parametrize(("case", "labels"), list(bad_labels()), ids=[c for c, _ in bad_labels()])
def test_errors_of_labels(name, case, labels):
    model, _ = MODELS[name]
    output = quiet(lambda: type(model)(**model.get_params()).fit(X, labels))
    assert output or (name == "ridge" and case == "numbers")
    quiet(lambda: type(model)(data_norm=NORM).fit(X, labels))
    trained = fitted(name)
    quiet(lambda: expost.profile(trained, X, labels))
    quiet(
        lambda: expost.profile(trained, X, MODELS[name][1], relation="add", candidates=(X, labels))
    )
    quiet(lambda: expost.neighbours(X, labels))
    quiet(lambda: expost.neighbours(X, labels, loss="squared"))


def test_warnings_of_clipping_and_leaks():
    output = quiet(lambda: PrivateRidge(huber_width=None).fit(X, TARGET))
    assert "clipped" in output
    assert "read from the data" in output
    assert "not private" in output


def test_a_refused_model_does_not_show_its_rows():
    theta = np.zeros(COLUMNS)
    mechanism = OutputPerturbation(
        epsilon=1e4,
        loss=expost.losses.Logistic(),
        regularization=1.0,
        rows=ROWS,
        dimension=COLUMNS,
    )
    rows = X / NORM
    signs = np.where(rows[:, 0] > 0, 1.0, -1.0)
    output = quiet(lambda: expost.profile(theta + 1.0, rows, signs, mechanism=mechanism))
    assert "cannot have made" in output


def test_texts_of_a_profile_name_no_value():
    """A profile is for the curator; even so, what it prints holds no row's values."""
    model, y = fitted("logistic"), LABELS
    profile = expost.profile(model, X, y)
    near = expost.neighbours(X / NORM, y)
    assert not found_in_text(str(profile) + repr(profile) + profile._repr_html_())
    assert not found_in_text(str(near) + repr(near) + repr(profile.losses))
    assert not found_in_text(near._repr_html_() + profile.losses._repr_html_())
    assert not found_in_text(profile.identifiability()._repr_html_())
    problem = Objective.of(
        X=X / NORM,
        y=np.where(y == "yes", 1.0, -1.0),
        loss=expost.losses.Logistic(),
        penalty=np.ones(COLUMNS),
    )
    assert not found_in_text(repr(minimise(problem)))


def test_nothing_is_printed(capfd):
    for name in MODELS:
        model = fitted(name)
        model.predict(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClippedRowsWarning)
            expost.profile(model, X, MODELS[name][1])
    assert capfd.readouterr() == ("", "")


def test_a_damaged_file_of_canaries_is_refused_quietly(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(X.tobytes())
    output = quiet(lambda: Release.load(path))
    assert "InvalidInput" in output
    buffer = io.BytesIO(pickle.dumps(X))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(InvalidInput):
        Release.load(path)


# Tables, wherever they lie: an error carries no cell, also not in the errors behind it.


def damaged():
    """The columns of the canaries with one cell that is refused, by what is wrong with it."""
    columns = {name: X[:, index].tolist() for index, name in enumerate("abcd")}
    columns |= {"who": list(NAMES), "outcome": LABELS.tolist()}
    yield "a name among numbers", {**columns, "b": [*columns["b"][:-1], NAMES[0]]}
    yield "a key twice", {**columns, "who": [*NAMES[:-1], NAMES[0]]}
    yield "a key that is missing", {**columns, "who": [*NAMES[:-1], None]}
    yield "another label", {**columns, "outcome": [*columns["outcome"][:-1], NAMES[0]]}
    yield "no label", {**columns, "outcome": [*columns["outcome"][:-1], None]}
    yield "infinity", {**columns, "c": [*columns["c"][:-1], float("inf")]}
    yield "lists", {**columns, "c": [[cell] for cell in columns["c"]]}
    yield "text for a number", {**columns, "d": list(NAMES)}


def as_csv(columns, folder):
    path = folder / "t.csv"
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join("" if cell is None else str(cell) for cell in row))
    path.write_text("\n".join(lines) + "\n")
    return path, {}


def as_pandas(columns, folder):
    return pd.DataFrame({name: pd.Series(cells) for name, cells in columns.items()}), {}


def as_polars(columns, folder):
    return pl.DataFrame(columns, strict=False), {}


def as_parquet(columns, folder):
    path = folder / "t.parquet"
    pl.DataFrame(columns, strict=False).write_parquet(path)
    return path, {}


def as_sqlite(columns, folder):
    path = folder / "t.db"
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute(f"CREATE TABLE t ({', '.join(columns)})")
        rows = zip(*columns.values(), strict=True)
        flat = [[str(cell) if isinstance(cell, list) else cell for cell in row] for row in rows]
        base.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", flat)
    return str(path), {"query": "t"}


@pytest.fixture(scope="module")
def encoding(tmp_path_factory):
    return Encoding.load(write_encoding(tmp_path_factory.mktemp("encoding") / "e.json"))


@pytest.mark.parametrize("form", [dict, as_csv, as_pandas, as_polars, as_parquet, as_sqlite])
@pytest.mark.parametrize(("case", "columns"), list(damaged()), ids=[case for case, _ in damaged()])
def test_errors_of_tables(tmp_path, encoding, form, case, columns):
    source, options = (columns, {}) if form is dict else form(columns, tmp_path)

    def read(**more):
        table = open_table(source, id_column="who", **options, **more)
        encoding.encode_table(table.retyped(encoding.kinds))

    output = quiet(read)
    output += quiet(
        lambda: encoding.encode_table(encoding.open(source, id_column="who", **options))
    )
    assert "InvalidInput" in output
    quiet(lambda: Encoding.read(open_table(source, **options), target="outcome"))
    model = PrivateLogisticRegression(data_norm=NORM, classes=["no", "yes"])
    if form in (as_pandas, as_polars):
        quiet(lambda: model.fit(source, LABELS))
        quiet(lambda: model.fit(X, source["outcome"]))
        trained = fitted("logistic")
        quiet(lambda: trained.score(source, LABELS))
        quiet(lambda: trained.score(X, source["who"]))
        quiet(lambda: expost.profile(trained, X, LABELS, ids=source["c"]))
        quiet(lambda: expost.profile(trained, X, LABELS, persons=source["c"]))


def test_errors_of_scores_ids_groups_and_lookups():
    for name in ("logistic", "ridge"):
        trained, y = fitted(name), MODELS[name][1]
        for _, labels in bad_labels():
            quiet(lambda trained=trained, labels=labels: trained.score(X, labels))
        for keys in ([*NAMES[:-1], "\ud800"], [[item] for item in NAMES], NAMES[:-1], NAMES * 2):
            quiet(lambda t=trained, y=y, keys=keys: expost.profile(t, X, y, ids=keys))
            quiet(lambda t=trained, y=y, keys=keys: expost.profile(t, X, y, persons=keys))
        report = expost.publish(trained)
        own = {f"column {index}": 0 for index in range(COLUMNS)}
        assert quiet(lambda r=report, own=own: r.lookup({**own, "column 1": NAMES[0]}, "no"))
        assert quiet(lambda r=report, own=own: r.lookup(own, NAMES[0]))
        assert quiet(lambda r=report: r.bound(X, NAMES))


def leaky(rows, labels, seed):
    raise ValueError(f"could not convert string to float: {NAMES[0]!r}, {X[0].tolist()}")


def test_errors_of_trainings():
    """A user's training may quote what it likes: its words are not carried on."""
    output = quiet(lambda: expost.audit(None, X, LABELS, train=leaky, references=2, workers=1))
    assert "ValueError in test_canaries.py" in output
    output = quiet(
        lambda: expost.audit(LogisticRegression(), text_cell(X), LABELS, references=2, workers=1)
    )
    # At the fit or at an answer: coins decide where the row is.
    assert re.search(r"\((its fit|it) raised ValueError in", output)


def test_an_error_keeps_none_that_it_was_raised_in():
    """Nor does it once it is raised again, is pickled, or is seen by the interpreter itself."""
    try:
        try:
            raise KeyError(NAMES[0])
        except KeyError:
            raise InvalidInput("refused.")  # noqa: B904 (that is the point)
    except InvalidInput as error:
        caught = error
    assert caught.__context__ is None
    assert caught.__suppress_context__
    assert NAMES[0] not in "".join(traceback.format_exception(caught))
    # What held it is gone, and not only hidden.
    assert not any(isinstance(item, KeyError) for item in gc.get_referents(caught))
    caught.__context__ = KeyError(NAMES[0])
    assert caught.__context__ is None
    copied = pickle.loads(pickle.dumps(caught))
    assert type(copied) is InvalidInput
    assert str(copied) == "refused."


# The command line.


def write_table(path, *, damage=None):
    """The canaries as a CSV file, the names as its key."""
    lines = ["who,a,b,c,d,outcome"]
    for name, row, label in zip(NAMES, X, LABELS, strict=True):
        lines.append(",".join([name, *map(repr, row.tolist()), label]))
    if damage:
        damage(lines)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_encoding(path):
    """Means, scales and bounds that are known without the data."""
    numeric = {"kind": "numeric", "mean": 0.0, "scale": 1000.0, "cut": 2.0, "origin": "given"}
    encoding = {
        "format": "expost encoding",
        "version": 2,
        "missing": [""],
        "target": {"column": "outcome", "classes": ["no", "yes"], "origin": "given"},
        "columns": dict.fromkeys("abcd", numeric),
        "dropped": {},
        "data_norm": {"value": 2.0, "origin": "given"},
        "features": list("abcd"),
    }
    path.write_text(json.dumps(encoding))
    return path


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the program; what it prints, if it ends with this code and complains of no cell.

    What libraries write past Python is heard, too.
    """

    def call(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["expost", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed, output = capfd.readouterr()
        assert (ended.value.code or 0) == code, output
        assert not found_in_text(output, SAID), output
        return printed

    return call


def test_what_the_program_writes_for_others(tmp_path, run):
    """Whatever in the folder is not named CURATOR-ONLY, model.json first of all."""
    table, encoding = write_table(tmp_path / "t.csv"), write_encoding(tmp_path / "e.json")
    out = tmp_path / "out"
    printed = run(
        "profile", table, "--target", "outcome", "--id", "who",
        "--encoding", encoding, "--epsilon", "2", "--out", out,
    )  # fmt: skip
    public = [path for path in out.iterdir() if "CURATOR-ONLY" not in path.name]
    assert json.loads((out / "model.json").read_text())["audience"] == "public"
    for path in public:
        assert not found_in_bytes(path.read_bytes()), path.name
    curator = b"".join(path.read_bytes() for path in out.iterdir() if path not in public)
    assert found_in_bytes(curator)
    # The ledger is the curator's too, for its digests; no row is in it.
    assert not found_in_bytes(ledger_in(out).read_bytes())
    # The screen names the most exposed people to the curator, but none of their values.
    assert not found_in_text(printed.replace("canary-", ""), SAID)


def test_pages_for_everybody(tmp_path, run):
    """A published report with its page, and a public page of everything: no row is in them."""
    table, encoding = write_table(tmp_path / "t.csv"), write_encoding(tmp_path / "e.json")
    folders = {name: tmp_path / name for name in ("profile", "choice", "published", "risk")}
    arguments = (table, "--target", "outcome", "--id", "who")
    # What a curator calls a file, and where it lies, may tell of a person.
    model = tmp_path / f"of {NAMES[5]}" / f"{NAMES[6]}.json"

    run(
        "profile", *arguments, "--encoding", encoding, "--epsilon", "2", "--out", folders["profile"]
    )
    run(
        "epsilon", *arguments, "--encoding", encoding, "--folds", "0", "--epsilons", "1,2",
        "--out", folders["choice"],
    )  # fmt: skip
    model.parent.mkdir()
    model.write_bytes((folders["profile"] / "model.json").read_bytes())
    run("publish", *arguments, "--model", model, "--out", folders["published"])
    run("risk", model, "--out", folders["risk"])
    # A person who asks may hold report.json under any name as well.
    hers = tmp_path / f"{NAMES[7]}.json"
    hers.write_bytes((folders["published"] / "report.json").read_bytes())
    own = [f"--set={name}=0" for name in "abcd"]
    run("lookup", hers, *own, "--out", tmp_path / "lookup")
    printed = run("report", *folders.values(), "--public", "--out", tmp_path / "site")
    assert not found_in_text(printed, SAID)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    pages = [path for path in written if path.parent not in (tmp_path, model.parent)]
    public = [path for path in pages if "CURATOR-ONLY" not in path.name]
    expected = {"model.json", "report.json", "report.html", "report.md", "summary.json"}
    assert {path.name for path in public} == expected | {"encoding.json"}
    assert {path.name for path in listed(tmp_path / "site")} <= expected
    for path in public:
        assert not found_in_bytes(path.read_bytes()), path
    # Power: with the curator's own pages it is otherwise.
    run("report", *folders.values(), "--out", tmp_path / "private")
    private = b"".join(path.read_bytes() for path in (tmp_path / "private").iterdir())
    assert found_in_bytes(private)


def test_constants_read_from_the_data_are_for_a_review(tmp_path, run):
    """Levels that are canaries: they are in the published report, and in nothing that is public."""
    towns = ["town", *(NAMES[row % 3] for row in range(ROWS))]

    def put_towns(lines):
        lines[:] = [f"{town},{line}" for town, line in zip(towns, lines, strict=True)]

    table = write_table(tmp_path / "t.csv", damage=put_towns)
    arguments = (table, "--target", "outcome", "--id", "who")
    folders = {name: tmp_path / name for name in ("profile", "published", "blocks", "risk")}

    run("profile", *arguments, "--epsilon", "2", "--out", folders["profile"])
    model = folders["profile"] / "model.json"
    published = ("publish", *arguments, "--model", model, "--out")
    printed = run(*published, folders["published"])
    printed += run(*published, folders["blocks"], "--engine", "local:2")
    assert "the levels of 'town'" in printed
    assert not found_in_text(printed, SAID)
    for name in ("published", "blocks"):
        report = folders[name] / "report.CURATOR-ONLY.json"
        assert json.loads(report.read_text())["audience"] == "needs-review"
        # Power: the levels stand in it, and no other cell does.
        assert found_in_bytes(report.read_bytes())
        rest = report.read_text()
        for level in NAMES[:3]:
            rest = rest.replace(level, "")
        assert not found_in_bytes(rest.encode())
        for path in listed(folders[name]):
            assert "CURATOR-ONLY" in path.name
            assert path.is_dir() or path.stat().st_mode & 0o777 == 0o600
    own = [f"--set={name}=0" for name in "abcd"]
    report = folders["published"] / "report.CURATOR-ONLY.json"
    run("lookup", report, *own, f"--set=town={NAMES[0]}", "--out", tmp_path / "lookup")
    assert all("CURATOR-ONLY" in path.name for path in listed(tmp_path / "lookup"))
    site = ("--public", "--out", tmp_path / "site")
    assert not run("report", folders["published"], *site, code=2)
    run("risk", "--epsilon", "2", "--out", folders["risk"])
    printed = run("report", folders["published"], folders["risk"], *site)
    assert not found_in_text(printed, SAID)
    assert listed(tmp_path / "site")
    for path in listed(tmp_path / "site"):
        assert not found_in_bytes(path.read_bytes()), path


def cut_a_line(lines):
    lines[100] = lines[100].rsplit(",", 3)[0]


def add_a_cell(lines):
    lines[100] += "," + NAMES[3]


def put_a_name(lines):
    cells = lines[100].split(",")
    lines[100] = ",".join([cells[0], NAMES[3], *cells[2:]])


def open_a_quote(lines):
    lines[100] = lines[100].replace(",", ',"', 1)


def change_a_label(lines):
    lines[100] = lines[100].rsplit(",", 1)[0] + "," + NAMES[3]


def lose_a_label(lines):
    lines[100] = lines[100].rsplit(",", 1)[0] + ","


def overflow(lines):
    cells = lines[100].split(",")
    lines[100] = ",".join([*cells[:1], "9" * 400, *cells[2:]])


@pytest.mark.parametrize(
    "damage",
    [cut_a_line, add_a_cell, put_a_name, open_a_quote, change_a_label, lose_a_label, overflow],
    ids=lambda damage: damage.__name__,
)
def test_the_program_shows_no_value_of_a_broken_table(tmp_path, run, damage):
    table = write_table(tmp_path / "t.csv", damage=damage)
    encoding = write_encoding(tmp_path / "e.json")
    out = tmp_path / "out"
    printed = run(
        "profile", table, "--target", "outcome", "--id", "who",
        "--encoding", encoding, "--out", out, code=2,
    )  # fmt: skip
    assert printed == ""
    assert not out.exists() or not list(out.iterdir())
