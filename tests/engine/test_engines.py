"""Every engine does the same: in order, once each, with errors as they were raised."""

import concurrent.futures
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from expost.engine import LocalEngine, engine_of
from expost.engine import dask as dask_module
from expost.engine.dask import check_machines, check_versions, machine, versions
from expost.engine.threads import one_blas_thread
from expost.errors import ExpostError, InvalidInput, WrongRows


@pytest.fixture(params=["local:1", "local:3", "dask:2"])
def engine(request, two_workers):
    if request.param == "dask:2":
        yield two_workers
    else:
        with engine_of(request.param) as local:
            yield local


def late_when_early(number):
    time.sleep(0.05 if number < 2 else 0.0)
    return number * number


def test_results_come_in_the_order_of_the_items(engine):
    assert list(engine.map(late_when_early, range(30))) == [k * k for k in range(30)]
    assert list(engine.map(late_when_early, [])) == []


def identity(item):
    return item


@pytest.mark.parametrize(
    "item", ["abs", ("a", [1, 2]), {"a": 1}, None, (sum, [1, 2]), np.arange(3.0)]
)
def test_an_item_arrives_as_it_is(engine, item):
    # A tuple that starts with a function is a call to some schedulers, a text the name of a task.
    (returned,) = engine.map(identity, [item])
    np.testing.assert_equal(returned, item)


def refuse_three(number):
    if number == 3:
        raise WrongRows(f"row {number}: is not of this model; pass its training rows.")
    return number


def test_an_error_of_a_task_is_raised_as_itself_and_ends_the_rest(engine):
    taken = []

    def items():
        for number in range(1_000):
            taken.append(number)
            yield number

    results = []
    with pytest.raises(WrongRows, match=r"^row 3: .*training rows\.$"):
        results.extend(engine.map(refuse_three, items()))
    assert len(taken) < 50
    # The engine goes on.
    assert list(engine.map(identity, range(5))) == list(range(5))


def time_out(number):
    raise TimeoutError("of the task itself")


def test_a_time_out_of_a_task_is_none_of_the_engine(engine):
    with pytest.raises(TimeoutError, match="of the task itself"):
        list(engine.map(time_out, [1]))


def test_no_more_items_are_taken_than_a_window(engine):
    taken = []

    def items():
        for number in range(200):
            taken.append(number)
            yield number

    results = engine.map(identity, items())
    assert taken == []
    for wanted in range(20):
        assert next(results) == wanted
        assert len(taken) <= wanted + 4 * engine.workers
    results.close()
    assert len(taken) < 40


def blas_threads(_):
    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


def test_a_task_has_one_blas_thread(engine):
    with threadpool_limits(limits=2, user_api="blas"):
        assert {count for counts in engine.map(blas_threads, range(6)) for count in counts} == {1}
        assert set(blas_threads(0)) == {2}


def test_who_leaves_first_does_not_give_the_threads_back():
    with threadpool_limits(limits=2, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads(0)) == {1}
        second.__exit__(None, None, None)
        assert set(blas_threads(0)) == {2}


def test_names_say_how_many_workers():
    with engine_of("local:3") as three, engine_of() as every:
        assert three.workers == 3
        assert every.workers == len(os.sched_getaffinity(0))


# Threads


def own_threads():
    """Dask has threads of its own here, which come and go."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("expost")]


def test_threads_end_after_an_error_and_an_interrupt():
    def interrupted(number):
        time.sleep(0.01)
        if number == 5:
            raise KeyboardInterrupt
        return number

    done = []
    with pytest.raises(KeyboardInterrupt), engine_of("local:2") as engine:
        done.extend(engine.map(interrupted, range(10_000)))
    assert own_threads() == []
    assert done == list(range(5))


def test_an_interrupt_of_who_waits_leaves_no_thread():
    started = []

    def ask():
        with engine_of("local:2") as engine:
            for number in engine.map(lambda item: started.append(item) or item, range(10_000)):
                if number == 3:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask()
    assert own_threads() == []
    assert len(started) < 20


def test_a_signal_at_any_moment_leaves_no_thread_waiting():
    """2,000 interruptions: the main thread must hold nothing that a thread needs to go on.

    A ThreadPoolExecutor in place of our threads waits for ever in this test.
    """
    program = """
        import random, signal
        from expost.engine import engine_of

        def interrupt(number, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        moments, interrupted = random.Random(0), 0
        for _ in range(2_000):
            try:
                with engine_of("local:2") as engine:
                    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, 2e-3))
                    try:
                        for _ in engine.map(abs, range(10_000)):
                            pass
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
        print(interrupted)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1_000


def test_a_closed_engine_cancels_what_had_not_begun():
    engine = LocalEngine(1)
    results = engine.map(identity, range(10))
    assert next(results) == 0
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        # The item that was being processed may still arrive.
        list(results)
    assert own_threads() == []


def test_an_engine_that_nobody_closes_ends_with_its_last_reference():
    engine = LocalEngine(2)
    assert list(engine.map(identity, range(3))) == [0, 1, 2]
    threads = own_threads()
    assert len(threads) == 2
    del engine
    for thread in threads:
        thread.join(timeout=10)
    assert own_threads() == []


def test_threads_that_the_system_refuses_are_an_error_and_leave_none(monkeypatch):
    start, allowed = threading.Thread.start, iter((True, False))

    def refused(thread):
        if not next(allowed):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="start new thread"):
        LocalEngine(2)
    monkeypatch.undo()
    for thread in own_threads():
        thread.join(timeout=10)
    assert own_threads() == []


# A cluster


def test_nobody_but_this_machine_can_listen_and_nothing_is_a_dashboard(two_workers, monkeypatch):
    client = two_workers.client
    pids = {os.getpid(), *client.run(os.getpid).values()}
    places = [
        connection.laddr.ip
        for pid in pids
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(places) >= 4
    assert set(places) == {"127.0.0.1"}
    # Without the key nobody gets in.
    address = client.scheduler.address
    assert address.startswith("tls://")
    monkeypatch.setattr(dask_module, "_PATIENCE", 0.5)
    name = address.replace("tls://", "dask://")
    with pytest.raises(InvalidInput, match="no scheduler answers there"), engine_of(name):
        pass


def scratch(_):
    from distributed import get_worker

    return get_worker().local_directory, get_worker().memory_manager.memory_limit


def test_nothing_is_left_behind():
    here = psutil.Process()
    before = {child.pid for child in here.children(recursive=True)}
    environment = dict(os.environ)
    with engine_of("dask:1") as engine:
        assert engine.workers == 1
        ((folder, limit),) = engine.map(scratch, [0])
        assert Path(folder).exists()
        assert limit is None
    assert not Path(folder).exists()
    assert not Path(folder).parent.parent.exists()
    after = [child for child in here.children(recursive=True) if child.pid not in before]
    # The resource tracker of multiprocessing stays for as long as this process.
    assert [p for p in after if "resource_tracker" not in " ".join(p.cmdline())] == []
    assert dict(os.environ) == environment


class Big:
    """More than Dask likes to be sent."""

    def __init__(self):
        self.content = np.zeros(3 * 2**19)

    def __call__(self, item):
        return self.content.nbytes + item.nbytes


def test_tasks_and_items_may_be_large(two_workers):
    # Warnings are errors here.
    assert list(two_workers.map(Big(), [np.zeros(2**21)])) == [2**24 + 3 * 2**22]


class Secret:
    """What a row might hold."""

    def __repr__(self):
        return "4711-secret"


def fail(item):
    raise InvalidInput("is refused.")


def test_what_a_worker_writes_about_an_error_shows_no_item(two_workers):
    with pytest.raises(InvalidInput, match=r"^is refused\.$"):
        list(two_workers.map(fail, [Secret(), (Secret(), "4711-secret")]))
    logs = str(two_workers.client.get_worker_logs())
    assert "Compute Failed" in logs
    assert "is refused." in logs
    assert "4711" not in logs


def test_a_cluster_is_reached_by_its_address_or_its_client(two_workers, monkeypatch):
    import distributed

    with distributed.LocalCluster(
        n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as cluster:
        name = cluster.scheduler_address.replace("tcp://", "dask://")
        with engine_of(name) as engine:
            assert list(engine.map(late_when_early, range(5))) == [0, 1, 4, 9, 16]
        with distributed.Client(cluster) as client:
            with engine_of(client) as engine:
                assert list(engine.map(late_when_early, range(5))) == [0, 1, 4, 9, 16]
            assert client.status == "running"
        cluster.scale(0)
        while cluster.scheduler.workers:
            time.sleep(0.05)
        monkeypatch.setattr(dask_module, "_PATIENCE", 0.2)
        with pytest.raises(InvalidInput, match="has no workers; start some"), engine_of(name):
            pass


def test_an_address_where_nobody_answers_is_told(monkeypatch):
    monkeypatch.setattr(dask_module, "_PATIENCE", 0.3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        pytest.raises(InvalidInput, match=rf"engine='tcp://127.0.0.1:{port}': no scheduler"),
        engine_of(f"dask://127.0.0.1:{port}"),
    ):
        pass


# Who may compute together


def test_workers_of_another_version_are_refused():
    same = dict(versions())
    assert same["expost"] == "0.1.0"
    check_versions({"the scheduler": same, "tcp://a": same})
    other = {**same, "numpy": "1.0"}
    with pytest.raises(
        InvalidInput,
        match=r"^engine: tcp://b has numpy 1\.0",
    ):
        check_versions({"tcp://a": same, "tcp://b": other})
    absent = {name: version for name, version in same.items() if name != "expost"}
    with pytest.raises(InvalidInput, match=r"tcp://b has expost \(not installed\)"):
        check_versions({"tcp://b": absent})


def test_workers_that_compute_differently_are_refused():
    mine = machine()
    assert any("openblas" in part or "mkl" in part or "blis" in part for part in mine)
    assert check_machines({"tcp://a": mine, "tcp://b": mine}) == mine
    other = (*mine[:-1], "openblas 0.3 for Prescott")
    with pytest.raises(InvalidInput, match=r"tcp://a and tcp://b .*Prescott"):
        check_machines({"tcp://a": mine, "tcp://b": other})


def test_the_version_of_the_workers_is_asked(two_workers, monkeypatch):

    monkeypatch.setattr(dask_module, "versions", lambda: {"expost": "9.9"})
    with pytest.raises(InvalidInput, match=re.escape("expost 0.1.0, and here it is 9.9")):
        dask_module.DaskEngine(two_workers.client)


# Workers that are lost


class FakeClient:
    """A client whose workers pass every check at the start."""

    status = "closed"
    scheduler = type("", (), {"address": "tcp://somewhere"})

    def __init__(self, kind=None):
        self.kind = kind or machine()

    def wait_for_workers(self, *_, **__):
        pass

    def get_versions(self, **_):
        answer = {"packages": versions()}
        return {"scheduler": answer, "workers": {"a": answer}}

    def run(self, *_, **__):
        return {"a": self.kind}

    def nthreads(self):
        return {"a": 1}


class DyingClient(FakeClient):
    """A client whose workers die with every item, or are not there."""

    def __init__(self, *, killed, there=1):
        super().__init__()
        self.sent, self.killed, self.there = 0, killed, there

    def submit(self, function, *arguments, pure):
        # The task is sent by itself, an item with its task.
        self.sent += len(arguments) == 2
        return self

    def result(self, timeout):
        if not self.there:
            raise TimeoutError
        raise self.killed

    def nthreads(self):
        return super().nthreads() if self.there else {}


class ClientHere(FakeClient):
    """A client whose one worker is this process, which joined later than the one of ``kind``."""

    def submit(self, function, *arguments, pure):
        done = Future()
        try:
            done.set_result(function(*(getattr(part, "value", part) for part in arguments)))
        except InvalidInput as error:
            done.set_exception(error)
        return done


class Future(concurrent.futures.Future):
    """A future that is done, with what the engine reads of one of Dask."""

    @property
    def status(self):
        return "finished" if self.exception() is None else "error"

    @property
    def value(self):
        return self.result()


def test_a_worker_that_comes_later_is_checked_too():
    other = (*machine()[:-1], "openblas 0.3 for Prescott")
    with pytest.raises(InvalidInput, match="joined later"):
        list(dask_module.DaskEngine(ClientHere(other)).map(identity, [1]))
    assert list(dask_module.DaskEngine(ClientHere()).map(identity, [1])) == [1]


def test_an_item_that_kills_its_workers_is_given_up():
    import distributed

    client = DyingClient(killed=distributed.KilledWorker("task", None, 3))
    with pytest.raises(ExpostError, match="several workers died"):
        list(dask_module.DaskEngine(client).map(identity, [1]))
    assert client.sent == 3


def test_a_lost_scheduler_and_absent_workers_are_told(monkeypatch):
    from concurrent.futures import CancelledError

    with pytest.raises(ExpostError, match="scheduler at tcp://somewhere was lost"):
        list(dask_module.DaskEngine(DyingClient(killed=CancelledError())).map(identity, [1]))
    client = DyingClient(killed=None, there=0)
    client.status = "pending"
    monkeypatch.setattr(dask_module, "_NO_WORKER_TIMEOUT", -1.0)
    restarted = []
    engine = dask_module.DaskEngine(client, restart=lambda: restarted.append(1))
    with pytest.raises(ExpostError, match="has had no worker"):
        list(engine.map(identity, [1]))
    # Those that were started with the engine were asked for once more.
    assert restarted


def test_a_local_engine_closes_at_once():
    engine = LocalEngine(2)
    assert list(engine.map(identity, [1, 2])) == [1, 2]
    engine.close()
    with pytest.raises(RuntimeError):
        list(engine.map(identity, [1]))
