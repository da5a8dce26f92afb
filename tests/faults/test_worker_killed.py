"""Workers that are killed in the middle of a run cost time, never a byte of the result."""

import os
import signal
import subprocess
import sys
import threading
import time

import distributed
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from evidence import record
from expost.engine import engine_of
from expost.errors import ExpostError
from expost.glm import minimise
from expost.neighbouring.expansion import curvature_of
from test_streamed import released, streamed, table

ROWS, SIZE = 1_000, 96
SEED = 20261116


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A run over a table in a file: engine -> its result in bytes; and what it should be."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table(ROWS), path, row_group_size=333)
    release, _, rows, encoding = released(str(path))

    def run(engine):
        problem = streamed(release, rows, encoding, engine, SIZE)
        base = minimise(problem)
        arrays = [base.theta, curvature_of(problem, base).second]
        for part in problem.map(every):
            arrays += [part.loss, part.high, part.distance]
        return b"".join(array.tobytes() for array in arrays)

    with engine_of("local:2") as local:
        every = release.mechanism.prepare(
            streamed(release, rows, encoding, local, SIZE), release.theta
        )
        counted = InterruptedEngine(local, after=-1)
        wanted = run(counted)
    return run, wanted, counted.seen


class InterruptedEngine:
    """An engine to which something happens a moment after so many results."""

    def __init__(self, engine, *, after, moment=0.0, kill=None):
        self.engine, self.after, self.moment, self.kill = engine, after, moment, kill
        self.workers, self.seen, self.timer = engine.workers, 0, None

    def map(self, task, items):
        for result in self.engine.map(task, items):
            self.seen += 1
            if self.seen == self.after:
                self.timer = threading.Timer(self.moment, self.kill)
                self.timer.start()
            yield result


def killed_while_running(job, engine, *, after, moment, victims):
    """Run the job, kill the victims in its middle, and compare."""
    run, wanted, _ = job
    processes = []
    wait_until(lambda: processes.append(living(engine)) or len(processes[-1]) == 2, 120)
    chosen = [processes[-1][index] for index in victims]

    def kill():
        for pid in chosen:
            os.kill(pid, signal.SIGKILL)

    interrupted = InterruptedEngine(engine, after=after, moment=moment, kill=kill)
    arrays = run(interrupted)
    interrupted.timer.join()
    wait_until(lambda: not any(map(alive, chosen)))
    assert not any(map(alive, chosen))
    return arrays == wanted


def living(engine):
    """The processes of the workers, after those that are missing were asked for."""
    engine.restart()
    processes = engine.client.run(os.getpid, on_error="ignore")
    return sorted(pid for pid in processes.values() if alive(pid))


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def two_workers():
    with engine_of("dask:2") as engine:
        yield engine


@pytest.mark.parametrize(("point", "victims"), [(0, (0,)), (1, (0, 1))])
def test_killed_workers_change_no_byte(job, two_workers, point, victims):
    rng = np.random.default_rng((SEED, point))
    after, moment = int(rng.integers(2, job[2])), float(rng.uniform(0, 0.05))
    assert killed_while_running(job, two_workers, after=after, moment=moment, victims=victims)


@pytest.fixture
def nanny(tmp_path):
    """A worker in this process, one with a nanny in others, and an engine on both."""
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        options = ["--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen(
                [*command, *options, "--local-directory", str(tmp_path)],
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
            ) as process,
        ):
            try:
                with engine_of(cluster.scheduler_address.replace("tcp", "dask")) as engine:
                    engine.client.wait_for_workers(2, timeout=60)
                    yield process, engine
            finally:
                process.kill()


# The modules of the tests too.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_killed_nanny_changes_no_byte(job, nanny):
    process, engine = nanny
    run, wanted, results = job
    (worker,) = {*engine.client.run(os.getpid).values()} - {os.getpid()}
    rng = np.random.default_rng((SEED, 2))
    after = int(rng.integers(1, results // 2))
    interrupted = InterruptedEngine(
        engine, after=after, moment=float(rng.uniform(0, 0.05)), kill=process.kill
    )
    assert run(interrupted) == wanted
    interrupted.timer.join()
    process.wait(timeout=10)
    # Its worker does not outlive it.
    wait_until(lambda: not alive(worker))
    assert not alive(worker)
    assert engine.workers == 1


def wait_until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)


PROGRAM = """
import os, time
from expost.engine import engine_of

def work(item):
    time.sleep(item)
    return os.getpid()

if __name__ == "__main__":
    with engine_of("dask:1") as engine:
        for pid in engine.map(work, [0, 600]):
            print(pid, flush=True)
"""


@pytest.mark.long
def test_workers_do_not_outlive_a_killed_program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    ) as program:
        worker = int(program.stdout.readline())
        assert alive(worker)
        program.kill()
    wait_until(lambda: not alive(worker))
    assert not alive(worker)


def end_this_process(item):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_workers_killed_at_twenty_moments(job, two_workers):
    rng = np.random.default_rng((SEED, 3))
    points = []
    for point in range(20):
        after, moment = int(rng.integers(1, job[2])), float(rng.uniform(0, 0.1))
        victims = (0, 1) if point % 5 == 4 else (int(rng.integers(2)),)
        start = time.perf_counter()
        same = killed_while_running(job, two_workers, after=after, moment=moment, victims=victims)
        seconds = round(time.perf_counter() - start, 2)
        points.append(
            {"after_results": after, "moment": round(moment, 3), "killed": len(victims),
             "same_bytes": same, "seconds": seconds}
        )  # fmt: skip
    record(
        "fault-worker",
        command="python -m pytest -m long tests/faults/test_worker_killed.py",
        seed=SEED,
        figures={"rows": ROWS, "results_of_a_run": job[2], "workers": 2, "points": points},
    )
    assert all(point["same_bytes"] for point in points)


@pytest.mark.long
def test_an_item_that_kills_every_worker_ends_in_an_error(two_workers):
    start = time.monotonic()
    with pytest.raises(ExpostError, match="several workers died"):
        list(two_workers.map(end_this_process, [1]))
    assert time.monotonic() - start < 300
    # The workers come back.
    assert list(two_workers.map(abs, [-1, -2])) == [1, 2]


@pytest.mark.long
def test_workers_that_die_again_and_again_change_no_byte(job, two_workers):
    run, wanted, _ = job
    killed = []

    class OftenInterrupted(InterruptedEngine):
        def map(self, task, items):
            for result in super().map(task, items):
                if self.seen % 5 == 0 and living(two_workers):
                    killed.append(living(two_workers)[0])
                    os.kill(killed[-1], signal.SIGKILL)
                yield result

    assert run(OftenInterrupted(two_workers, after=-1)) == wanted
    assert len(killed) >= 3
