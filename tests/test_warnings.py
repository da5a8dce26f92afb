"""Warnings of calls in several threads: the filters of the process stay as they are."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import expost
from expost import PrivateLogisticRegression, verbs
from expost.auditing.training import without_warnings
from expost.cli.main import main
from expost.errors import PrivacyLeakWarning

RNG = np.random.default_rng(16)
X = RNG.normal(size=(60, 3))
Y = np.where(X[:, 0] + RNG.normal(size=60) > 0, "yes", "no")


def fit():
    with pytest.warns(PrivacyLeakWarning):
        PrivateLogisticRegression(data_norm=9.0).fit(X, Y)


class Slow:
    """An estimator whose fit waits until the other thread is as far as the test wants it."""

    def __init__(self, arrive, leave):
        self.arrive, self.leave = arrive, leave

    def __call__(self, rows, labels, seed):
        self.arrive.set()
        assert self.leave.wait(30)
        model = PrivateLogisticRegression(data_norm=9.0, classes=("no", "yes")).fit(rows, labels)
        return model.predict_proba


def test_overlapping_calls_leave_the_filters():
    """The user's own catch_warnings begins inside an audit and ends after it."""
    before = list(warnings.filters)
    arrive, leave = threading.Event(), threading.Event()
    train = Slow(arrive, leave)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(
            expost.audit, None, X, Y, train=train, references=2, workers=1, random_state=0
        )
        assert arrive.wait(30)
        with warnings.catch_warnings():
            # An audit that is at work elsewhere neither silences this thread …
            fit()
            leave.set()
            run.result()
        # … nor leaves its silence behind.
    assert list(warnings.filters) == before
    fit()


def test_streamed_profile_does_not_take_the_warnings_of_other_threads(tmp_path, monkeypatch):
    """``profile`` of a table collects its own warnings, and no other thread's."""
    out = tmp_path / "p"
    monkeypatch.setattr("sys.argv", ["expost", "demo", "--out", str(out)])
    arrive, leave = threading.Event(), threading.Event()
    run = verbs.run_opened

    def slowly(*arguments):
        arrive.set()
        assert leave.wait(60)
        return run(*arguments)

    monkeypatch.setattr(verbs, "run_opened", slowly)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    patients = load_breast_cancer()
    rows = {str(name): patients.data[:, j] for j, name in enumerate(patients.feature_names)}
    rows["diagnosis"] = [str(patients.target_names[label]) for label in patients.target]
    before = list(warnings.filters)
    with ThreadPoolExecutor(1) as pool:
        streamed = pool.submit(expost.profile, out / "model.json", rows, out=tmp_path / "again")
        assert arrive.wait(60)
        with warnings.catch_warnings():
            fit()
            leave.set()
            streamed.result()
    assert list(warnings.filters) == before


def test_many_threads_at_once():
    """Fits, profiles and audits of many threads; every fit warns, every filter stays."""
    before = list(warnings.filters)
    model = PrivateLogisticRegression(data_norm=9.0, classes=("no", "yes")).fit(X, Y)
    recorded = []

    def show(message, category, *_):
        recorded.append(category)

    def work(number):
        if number % 3 == 0:
            PrivateLogisticRegression(data_norm=9.0).fit(X, Y)
        elif number % 3 == 1:
            expost.profile(model, X, Y)
        else:
            fresh = PrivateLogisticRegression(data_norm=9.0, classes=("no", "yes"))
            expost.audit(fresh, X, Y, references=2, workers=1, random_state=number)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PrivacyLeakWarning)
        warnings.showwarning = show
        inside = list(warnings.filters)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(24)))
        assert list(warnings.filters) == inside
    assert recorded == [PrivacyLeakWarning] * 8
    assert list(warnings.filters) == before
    fit()


def test_a_simulation_is_silent_in_its_own_thread():
    with without_warnings():
        PrivateLogisticRegression(data_norm=9.0, random_state=0).fit(X, Y)
        # Here warnings are errors.
        with ThreadPoolExecutor(1) as pool, pytest.raises(PrivacyLeakWarning):
            pool.submit(PrivateLogisticRegression(data_norm=9.0).fit, X, Y).result()
    fit()
