"""Work in processes: dead workers, errors, and what cannot be sent."""

import os
import signal

import pytest

from expost.engine.processes import available, each, one_thread
from expost.errors import ExpostError, InvalidInput


def test_workers_that_always_die_are_given_up():
    with pytest.raises(ExpostError, match="3 times in a row"):
        each(_fatal, [1, 2], workers=2, done=lambda place, result: None)


def _fatal(task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_in_a_worker_is_raised_and_what_cannot_be_sent_refused():
    with pytest.raises(ZeroDivisionError):
        each(_divide, [1, 0, 2], workers=2, done=lambda place, result: None)
    with pytest.raises(InvalidInput, match="workers=1"):
        each(lambda task: task, [1, 2], workers=2, done=lambda place, result: None)
    assert available() >= 1
    with one_thread():
        pass


def _divide(task):
    return 1 / task
