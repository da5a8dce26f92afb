"""Schedulers that are lost, addresses that are none, and workers that cannot reach a path."""

import errno
import os
import subprocess
import sys
from concurrent.futures import CancelledError
from pathlib import Path

import dask
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed.comm import CommClosedError

import expost
from expost.cli.main import main
from expost.engine import dask as dask_module
from expost.engine import engine_of
from expost.engine.dask import machine, versions
from expost.errors import ExpostError, InvalidInput
from program import people, text

HERE = Path("/proc/self/cwd")


@pytest.mark.parametrize(
    "name",
    [
        "dask://x", "dask://:", "dask://:1", "dask://host:port", "dask://127.0.0.1:99999",
        "dask://127.0.0.1:0", "dask://127.0.0.1:-1", "dask://127.0.0.1:1/x", "dask://[::1",
        "dask://127.0.0.1:²", "dask+tls://x", "dask:", "dask:x", "dask:0", "dask:1.5", "dask://",
        "dask:///", "tcp://x:1", "locally", "local:", "local:0", "local:-1", "local:two", "", 5,
        None, b"local",
    ],
)  # fmt: skip
def test_a_malformed_address(name):
    with pytest.raises(InvalidInput, match=r"^engine=") as caught, engine_of(name):
        pass
    assert repr(name) in str(caught.value) or "workers" in str(caught.value)


def test_an_address_of_tls_without_certificates(monkeypatch):
    monkeypatch.setattr(dask_module, "_PATIENCE", 0.3)
    with pytest.raises(InvalidInput, match="no scheduler answers"), engine_of("dask+tls://[::1]:1"):
        pass


class Lost:
    """A client whose scheduler goes away when it is asked for the ``last`` of these."""

    status = "running"

    def __init__(self, last, error):
        self.last, self.error, self.scheduler = last, error, type("", (), {"address": "tcp://s:1"})

    def _ask(self, name, answer):
        if name == self.last:
            raise self.error
        return answer

    def wait_for_workers(self, *_, **__):
        return self._ask("wait_for_workers", None)

    def get_versions(self, **_):
        answer = {"packages": versions()}
        return self._ask("get_versions", {"scheduler": answer, "workers": {"w": answer}})

    def run(self, *_, **__):
        return self._ask("run", {"w": machine()})

    def nthreads(self):
        return self._ask("nthreads", {"w": 1})

    def submit(self, *_, **__):
        return self._ask("submit", self)

    def result(self, timeout):
        return self._ask("result", 1)

    def cancel(self, _):
        raise self.error


@pytest.mark.parametrize(
    "last", ["wait_for_workers", "get_versions", "run", "nthreads", "submit", "result"]
)
@pytest.mark.parametrize(
    "error",
    [
        CommClosedError("in <TCP (closed)>"),
        OSError("Timed out trying to connect"),
        CancelledError(),
        distributed.client.ClosedClientError("closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_lost_scheduler(last, error):
    client = Lost(last, error)
    with pytest.raises(ExpostError, match=r"^engine: the scheduler at tcp://s:1"):
        list(dask_module.DaskEngine(client).map(abs, [1, 2, 3]))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """(The engine of a cluster whose one worker has another working folder, the folder here)."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as cluster:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with (
            (there / "log").open("wb") as log,
            subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, env={**os.environ, **paths}, cwd=there
            ) as process,
        ):
            try:
                with distributed.Client(cluster, set_as_default=False) as client:
                    client.wait_for_workers(1, timeout=60)
                    yield client, here
            finally:
                process.kill()


@pytest.fixture
def made(elsewhere, monkeypatch):
    """(Client, model.json, its table) in the working folder of the test."""
    client, here = elsewhere
    monkeypatch.chdir(here)
    if not (here / "made").exists():
        (here / "t.csv").write_text(text([row[1:2] + row[5:] for row in people(rows=200)]))
        command = ["expost", "profile", "t.csv", "--target", "income", "--out", "made"]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        frame = pd.read_csv("t.csv")
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), "t.parquet")
    return client, here / "made/model.json"


pytestmark = pytest.mark.skipif(not HERE.exists(), reason="this system has no /proc")


def test_a_worker_that_cannot_read_the_table(made, tmp_path):
    client, model = made
    with pytest.raises(InvalidInput, match=r"t\.parquet: .*No such file") as caught:
        expost.profile(model, str(HERE / "t.parquet"), out=tmp_path / "o", engine=client)
    assert "A worker of the cluster" in caught.value.__notes__[0]
    assert not (tmp_path / "o").exists()


def test_a_worker_that_cannot_read_a_collection(made, tmp_path):
    import dask.dataframe as dd

    client, model = made
    with client.as_current(), pytest.raises(InvalidInput, match=r"cannot reach '.*t\.parquet'"):
        expost.profile(
            model, dd.read_parquet(str(HERE / "t.parquet")), out=tmp_path / "o", engine=client
        )


def test_a_worker_that_cannot_write_the_folder(made):
    client, model = made
    with pytest.raises(InvalidInput, match=r"^engine: a worker cannot reach '"):
        expost.profile(
            model, str(Path("t.parquet").absolute()), out=HERE / "results", engine=client
        )


def raising(number):
    raise OSError(number, os.strerror(number), "/somewhere")


def canary(_):
    raise ValueError("canary-1234")


def test_errors_of_tasks(elsewhere):
    """Paths that cannot be reached are the worker's; a full disk is the business of the job."""
    with engine_of(elsewhere[0]) as engine:
        for number in (errno.ENOENT, errno.EACCES, errno.EROFS):
            with pytest.raises(InvalidInput, match="cannot reach '/somewhere'"):
                list(engine.map(raising, [number]))
        with pytest.raises(OSError, match="No space left") as caught:
            list(engine.map(raising, [errno.ENOSPC]))
        assert caught.value.errno == errno.ENOSPC
        # The code of a collection is the user's, and may quote cells.
        with pytest.raises(InvalidInput, match=r"could not be computed \(ValueError\)") as refused:
            list(engine.map(np.sum, [dask.delayed(canary)(1)]))
        assert "canary" not in str(refused.value)
