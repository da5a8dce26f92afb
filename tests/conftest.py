"""What the tests of the program share."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from expost.cli.main import main
from program import Ran, people, text

TESTS = Path(__file__).parent
# Files and folders that `make test` leaves to `make test-full`: crashes, fuzzing, the matrix of
# pages and browsers' sizes, laws of every mechanism, and statistics that take longest.
FULL = (
    *("faults", "fuzz", "browser", "conformance", "dossier", "engine", "noise"),
    *("erasure/test_charge.py", "erasure/test_error_bound.py", "erasure/test_law.py"),
    *("erasure/test_sequences.py", "risk/test_beyond_membership.py", "risk/test_gaussian_dp.py"),
    *("auditing/test_propensity.py", "auditing/test_shift.py", "test_cli_audit_models.py"),
    *("test_cli_check.py", "test_integrations.py", "conform/", "with_torch/test_conform.py"),
    *("accounting/test_pld.py", "auditing/test_audit.py", "auditing/test_audit_shown.py"),
    *("auditing/test_optimum.py", "auditing/test_references.py"),
    *("mechanisms/test_gradient_noise.py", "mechanisms/test_person_guarantee.py"),
    *("mechanisms/test_person_losses.py", "mechanisms/test_softmax_losses.py"),
    *("risk/test_calibrate.py", "risk/test_dpsgd.py", "risk/test_dpsgd_persons.py"),
    *("test_certificate.py", "test_cli_epsilon.py", "test_cli_stream.py", "test_imports.py"),
    *("test_install.py", "test_limit.py", "test_notebooks.py", "test_packaging.py"),
    *("test_memory.py", "test_own_mechanism.py", "test_portable.py", "test_private.py"),
    *("test_private_encoding.py", "report/test_drawing.py"),
    *("test_progress.py", "test_streamed", "test_tables_in_verbs.py"),
    *("with_torch/test_ghost.py", "with_torch/test_ghost_law.py"),
)
# Of these one pass belongs to `make test`: two mechanisms under every law, and pages as they open.
QUICK = (
    *("[output-laplace-logistic]", "[objective-gaussian-logistic]"),
    *("browser/test_access.py", "browser/test_hostile.py"),
    *("test_a_right_trainer_conforms", "test_our_trainer_conforms"),
    *("figures_of_its_answers[onnx-matrix]", "without_the_flag[0-model.pkl]"),
)

# Examples of properties are the same in every run, too; other noise draws others. No test is timed.
settings.register_profile(
    "expost", deadline=None, derandomize=not os.environ.get("EXPOST_TEST_NOISE")
)
settings.load_profile("expost")


def pytest_collection_modifyitems(items):
    """Mark the tests that only the full run takes."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix() if TESTS in item.path.parents else ""
        quick = any(part in f"{path} {item.name}" for part in QUICK)
        if path.startswith(FULL) and not quick:
            item.add_marker("full")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Draw the noise of real releases from a seed of the test's name: a run can be repeated."""
    with _noise_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Draw the noise of a shared fixture from its own name, whichever test needs it first."""
    if fixturedef.scope == "function":
        return (yield)
    with _noise_of(f"{fixturedef.baseid} {fixturedef.argname} {request.param_index}"):
        return (yield)


@contextmanager
def _noise_of(name: str) -> Iterator[None]:
    """Replace the operating system's bytes, in this process, by those of a seeded generator.

    ``random`` holds the function under a name of its own, which ``secrets`` draws from. Another
    ``EXPOST_TEST_NOISE`` draws other noise: a test that fails then depends on chance. Forks of this
    process draw from the system: names that are random must not be the same in two of them.
    """
    name = os.environ.get("EXPOST_TEST_NOISE", "") + name
    kept = os.urandom
    os.urandom = random._urandom = np.random.default_rng(list(name.encode())).bytes
    try:
        yield
    finally:
        os.urandom = random._urandom = kept


def _draw_from_the_system(drawn: Callable[[int], bytes] = os.urandom) -> None:
    os.urandom = random._urandom = drawn


os.register_at_fork(after_in_child=_draw_from_the_system)


@pytest.fixture
def program(monkeypatch, capsys):
    """Run ``expost`` with these arguments, in this process."""

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["expost", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Ran(code=left.value.code, out=out, err=err)

    return call


@pytest.fixture
def people_csv(tmp_path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(text(people()))
    return path
