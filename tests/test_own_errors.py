"""Whatever is passed in, what comes out is an error of expost's own, in one sentence."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import expost
from expost import (
    Ledger,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PublishedReport,
    Release,
)
from expost.data import Encoding, open_table
from expost.errors import ExpostError, InvalidInput
from program import people, text
from settings import OUTPUT
from test_sealed import resealed

ROWS = 40
RNG = np.random.default_rng(8)
X = RNG.normal(size=(ROWS, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")
T = np.clip(X[:, 1], -1, 1)
FRAME = pd.DataFrame(X, columns=list("abc"))


class OnTheGpu:
    """An array as CuPy's: it is copied to the host by ``get`` alone."""

    def __init__(self, array):
        self._array = array
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype
        self.__cuda_array_interface__ = {"shape": array.shape, "version": 3}

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (OnTheGpu(row) for row in self._array)

    def __getitem__(self, index):
        return OnTheGpu(self._array[index])

    def get(self):
        return self._array


class Silent:
    """A key that has no text."""

    def __str__(self):
        raise RuntimeError("canary")


def matrix(values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.asmatrix(values)


def model(kind):
    known = {**OUTPUT, "data_norm": 5.0}
    if kind == "ridge":
        return PrivateRidge(label_range=(-1.0, 1.0), huber_width=None, **known)
    known["classes"] = ("no", "yes")
    if kind == "svc":
        return PrivateLinearSVC(**known)
    return PrivateLogisticRegression(**{**known, "mechanism": kind})


KINDS = ("output", "objective", "svc", "ridge")


def labels(kind):
    return T if kind == "ridge" else Y


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {kind: model(kind).fit(X, labels(kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def report(fitted):
    return expost.publish(fitted["output"])


def own(call, *, accepted=False):
    """The message of the refusal; None where the call may be, and was, accepted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except ExpostError as error:
            message = str(error)
            assert message
            assert "\n" not in message
            return message
    assert accepted, "was not refused"
    return None


def of_features(fitted, report, values):
    """Every way in for features, by its name."""
    for kind in KINDS:
        yield f"fit {kind}", lambda kind=kind: model(kind).fit(values, labels(kind))
        yield f"predict {kind}", lambda kind=kind: fitted[kind].predict(values)
        yield f"score {kind}", lambda kind=kind: fitted[kind].score(values, labels(kind))
        yield (
            f"profile {kind}",
            lambda kind=kind: expost.profile(fitted[kind], values, labels(kind)),
        )
    yield "neighbours", lambda: expost.neighbours(values, Y)
    yield "squared", lambda: expost.neighbours(values, T, loss="squared")
    yield "bound", lambda: report.bound(values, Y)
    yield (
        "choose",
        lambda: expost.choose_epsilon(
            values, Y, folds=0, epsilons=[1.0], models=5, data_norm=5.0, **OUTPUT
        ),
    )
    yield (
        "candidates",
        lambda: expost.profile(fitted["output"], X, Y, relation="add", candidates=(values, Y)),
    )
    yield (
        "publish",
        lambda: expost.publish(
            fitted["objective"],
            values,
            Y,
            kind="data-dependent",
            epsilon_gradient=1.0,
            epsilon_hessian=1.0,
            delta=1e-5,
        ),
    )
    yield (
        "select",
        lambda: expost.selection.select_regularization(values, Y, [0.1, 1.0], epsilon=1.0),
    )
    yield "stream", lambda: expost.profile(fitted["output"], (values, Y), out="nowhere")
    yield (
        "audit",
        lambda: expost.audit(model("output"), values, Y, references=2, workers=1, random_state=0),
    )


FEATURES = {
    "sparse frame": FRAME.astype(pd.SparseDtype("float", 0.0)),
    "dates among numbers": FRAME.assign(c=pd.date_range("2020", periods=ROWS)),
    "durations among numbers": FRAME.assign(c=pd.timedelta_range("1D", periods=ROWS)),
    "text among numbers": FRAME.assign(c=Y),
    "mixed column": FRAME.assign(c=[1.0, "a"] * (ROWS // 2)),
    "lists in polars": pl.DataFrame({"a": X[:, 0], "b": [[1]] * ROWS, "c": X[:, 2]}),
    "NA": FRAME.astype(object).where(FRAME > -1, pd.NA),
    "on the GPU": OnTheGpu(X),
    "rows on the GPU": [OnTheGpu(row) for row in X],
}


@pytest.mark.parametrize("case", FEATURES)
def test_features(fitted, report, case):
    for name, call in of_features(fitted, report, FEATURES[case]):
        # Text in a frame is encoded there, as at the command line.
        encoded = case == "text among numbers" and name == "choose"
        message = own(call, accepted=encoded)
        if case == "on the GPU" and name not in ("stream", "audit"):
            assert "X.get()" in message or "x.get()" in message, (name, message)
        if case == "sparse frame" and name.startswith("fit"):
            assert message.startswith("X is a sparse frame")
            assert "X.sparse.to_dense()" in message


def test_a_matrix_is_an_array(fitted, report):
    """``np.matrix`` works like the array of its entries, in every way in."""
    for name, call in of_features(fitted, report, matrix(X)):
        if name not in ("publish", "select", "stream"):
            assert own(call, accepted=True) is None, name
    again = PrivateRidge(
        data_norm=5.0, label_range=(-1.0, 1.0), huber_width=None, epsilon=np.inf, regularization=1.0
    )
    wanted = again.fit(X, T).coef_.copy()
    assert np.array_equal(again.fit(matrix(X), matrix(T).T).coef_, wanted)
    assert again.score(matrix(X), matrix(T).T) == again.score(X, T)


LABELS = {
    "NA in a list": [pd.NA, *Y[1:]],
    "NA in an array": np.array([pd.NA, *Y[1:]], dtype=object),
    "NA in a string series": pd.Series([pd.NA, *Y[1:]], dtype="string"),
    "NA in an integer series": pd.Series([pd.NA, *[0, 1] * 19, 1], dtype="Int64"),
    "NA in a boolean series": pd.Series([pd.NA, *[True, False] * 19, True], dtype="boolean"),
    "on the GPU": OnTheGpu(T),
    "row of a matrix": matrix(T),
    "sets": [{1}] * ROWS,
    "dates": np.array(["2020", "2021"] * (ROWS // 2), dtype="M8[Y]"),
    "lone surrogate": np.where(Y == "no", "\ud800", "yes"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(fitted, report, case):
    y = LABELS[case]
    for kind in KINDS:
        own(lambda kind=kind: model(kind).fit(X, y))
        own(lambda kind=kind: expost.profile(fitted[kind], X, y))
        own(lambda kind=kind: fitted[kind].score(X, y), accepted=True)
    own(lambda: PrivateLogisticRegression(data_norm=5.0).fit(X, y), accepted=case == "dates")
    for relaxed in (
        lambda: expost.neighbours(X, y),
        lambda: expost.audit(model("output"), X, y, references=2, workers=1, random_state=0),
        lambda: expost.audit(
            model("output"), X, Y, population=(X, y), references=2, workers=1, random_state=0
        ),
        lambda: expost.profile(fitted["output"], X, Y, persons=y),
        lambda: expost.audit(
            model("output"), X, Y, groups={"g": y}, references=2, workers=1, random_state=0
        ),
    ):
        own(relaxed, accepted=True)
    own(lambda: expost.neighbours(X, y, loss="squared"))
    own(
        lambda: expost.choose_epsilon(
            X, y, folds=0, epsilons=[1.0], models=5, classes=("a", "b"), **OUTPUT
        )
    )
    own(lambda: report.bound(X, y))
    own(lambda: report.lookup({"column 0": 1, "column 1": 1, "column 2": 1}, y))
    own(lambda: report.lookup({"column 0": 1, "column 1": 1, "column 2": 1}, pd.NA))


def test_a_label_that_no_file_holds_is_refused_before_anything_is_spent():
    y = np.where(Y == "no", "\ud800", "yes")
    message = own(lambda: PrivateLogisticRegression(data_norm=5.0).fit(X, y))
    assert "lone surrogate" in message
    message = own(
        lambda: PrivateLogisticRegression(mechanism="objective", data_norm=5.0).fit(
            X, np.where(T > 0.5, "third", y)
        )
    )
    assert "lone surrogate" in message


@pytest.mark.parametrize("case", ["surrogate", "silent"])
def test_ids(fitted, case):
    ids = [f"r{row}" for row in range(ROWS)]
    ids[3] = {"surrogate": "\ud800", "silent": Silent()}[case]
    for call in (
        lambda: expost.profile(fitted["output"], X, Y, ids=ids),
        lambda: expost.choose_epsilon(
            X, Y, folds=0, epsilons=[1.0], models=5, data_norm=5.0, ids=ids, **OUTPUT
        ),
        lambda: expost.audit(
            model("output"), X, Y, references=2, workers=1, random_state=0, ids=ids
        ),
        lambda: expost.profile(fitted["output"], X, Y, persons=ids),
    ):
        assert " 3 " in own(call)


def test_ids_past_64_bits_are_written_as_text(fitted):
    ids = [2**70 + row for row in range(ROWS)]
    profile = expost.profile(fitted["output"], X, Y, ids=ids)
    assert profile.ids == tuple(map(str, ids))
    assert profile.to_arrow().num_rows == ROWS


@pytest.mark.parametrize("values", [None, 5, "a=1", [("column 0", 1)], {None: 1}, {}])
def test_lookup_of_what_is_no_form(report, values):
    assert own(lambda: report.lookup(values))
    assert own(lambda: report.bound_for(values, "yes"))


@pytest.mark.parametrize("value", ["canary-17", pd.NA, None, OnTheGpu(T), "\ud800"])
def test_lookup_shows_no_value(report, value):
    message = own(lambda: report.lookup({"column 0": value, "column 1": 0, "column 2": 0}))
    assert message.startswith("column 0: must be a number")
    assert str(value) not in message


@pytest.mark.parametrize("path", ["missing.json", "no/such/folder/x.json", "", None, 5, b"x"])
def test_missing_files(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for load in (
        Release.load,
        Ledger.load,
        PublishedReport.load,
        PrivateRidge.load,
        Encoding.load,
        open_table,
        expost.publish,
        expost.auditing.audit_arrays,
        lambda path: expost.profile(path, X, Y),
        lambda path: expost.audit(path, X, Y, X, Y, references=0),
        lambda path: expost.profile(path, "x.csv", out="out"),
        lambda path: expost.profile(path, path, out="out"),
    ):
        own(lambda load=load: load(path))
    assert not list(tmp_path.iterdir())


def test_a_forged_summary(tmp_path, monkeypatch, capsys):
    """A summary with an emptied part is refused with its path.

    If its checksum is made to fit, it is refused where the part is needed, and shown where not.
    """
    from expost.cli.main import main
    from expost.jobs.report import run
    from expost.jobs.requests import ReportRequest

    (tmp_path / "t.csv").write_text(text(people()))
    command = ["epsilon", str(tmp_path / "t.csv"), "--target", "income", "--id", "number"]
    command += ["--epsilons", "1,2", "--folds", "2", "--seed", "1", "--out", str(tmp_path / "e")]
    monkeypatch.setattr("sys.argv", ["expost", *command])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    file = tmp_path / "e/summary.CURATOR-ONLY.json"
    whole = json.loads(file.read_text())
    assert resealed(whole) == whole
    refused = {}
    for path in first_lists(whole["page"]):
        content = json.loads(json.dumps(whole))
        part = content["page"]
        for step in path[:-1]:
            part = part[step]
        name = f"{part['type']}.{path[-1]}"
        part[path[-1]] = []
        out = tmp_path / name
        job = ReportRequest(paths=(tmp_path / "e",), out=out)
        file.write_text(json.dumps(content))
        with pytest.raises(InvalidInput, match=rf"^{file}: does not match its checksum"):
            run(job)
        file.write_text(json.dumps(resealed(content)))
        try:
            run(job)
        except InvalidInput as error:
            refused[name] = str(error)
            assert not out.exists()
    for sentence in refused.values():
        assert sentence.startswith((f"{file}: ", "summary: holds figures"))
    assert refused.keys() >= {"Page.documents", "Table.columns", "Line.x", "Line.y", "Band.low"}


def first_lists(value, path=(), visited=None):
    """Where the first list with entries of each field of each type stands."""
    visited = set() if visited is None else visited
    lists = []
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for name, entry in entries:
        if not isinstance(entry, dict | list):
            continue
        field = (value["type"], name) if isinstance(value, dict) and "type" in value else None
        if isinstance(entry, list) and entry and field is not None and field not in visited:
            visited.add(field)
            lists.append((*path, name))
        lists += first_lists(entry, (*path, name), visited)
    return lists
