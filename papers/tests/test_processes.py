"""Work in processes: dead workers, errors, and what cannot be sent."""

import os
import signal

import pytest

from expost.errors import ExpostError, InvalidInput
from papers.common.processes import run_each


def test_workers_that_always_die_are_given_up():
    with pytest.raises(ExpostError, match="3 times in a row"):
        run_each(_fatal, [1, 2], workers=2, done=lambda index, result: None)


def _fatal(task):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_in_a_worker_is_raised_and_what_cannot_be_sent_refused():
    with pytest.raises(ZeroDivisionError):
        run_each(_divide, [1, 0, 2], workers=2, done=lambda index, result: None)
    with pytest.raises(InvalidInput, match="workers=1"):
        run_each(lambda task: task, [1, 2], workers=2, done=lambda index, result: None)


def _divide(task):
    return 1 / task
