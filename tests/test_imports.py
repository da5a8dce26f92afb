"""What starting expost must not import: programs wait for it, and ``--help`` most of all."""

import subprocess
import sys

import pytest

from program import PROGRAM, finished, imported

HEAVY = {"dp_accounting", "matplotlib", "dask", "distributed", "torch"}
# scikit-learn imports scipy.stats and pandas itself; commands without an estimator need neither.
OF_SKLEARN = {"scipy.stats", "scipy.signal", "pandas", "sklearn", "joblib"}
# Of scikit-learn, what a command needs only where it grows a tree or makes an attack.
SUBMODULES = {"sklearn.tree", "sklearn.ensemble", "sklearn.neighbors"}


def modules_after(code):
    """Return the names of all modules after ``code`` ran in a new process."""
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_imports_no_library():
    libraries = {"numpy", "scipy", "pyarrow", "duckdb", "typer", "rich", "jinja2"}
    assert not modules_after("import expost") & (HEAVY | OF_SKLEARN | libraries)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import expost.data", HEAVY | OF_SKLEARN | {"pyarrow.dataset"}),
        ("import expost.risk", HEAVY | OF_SKLEARN | {"pyarrow", "duckdb"}),
        ("from expost import identifiability", HEAVY | SUBMODULES),
        ("from expost import PrivateLogisticRegression", HEAVY | SUBMODULES),
        ("from expost import profile, choose_epsilon, publish", HEAVY | SUBMODULES),
        ("import expost.jobs.epsilon, expost.jobs.profile", HEAVY | SUBMODULES),
    ],
)
def test_modules_import_what_they_need(code, absent):
    assert not modules_after(code) & absent


@pytest.mark.parametrize("command", ["epsilon", "profile", "publish", "risk", "audit"])
def test_the_help_of_a_command_imports_no_numerics(command):
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM), command, "--help"])
    assert done.code == 0
    numerics = {"numpy", "scipy", "sklearn", "pyarrow", "duckdb", "pandas", "jinja2"}
    assert not imported(done) & (HEAVY | numerics)


def test_risk_imports_no_learning():
    command = [sys.executable, "-X", "importtime", str(PROGRAM), "risk"]
    for question in (["--epsilon", "1"], ["--epsilon", "1", "--delta", "1e-6"]):
        done = finished([*command, *question])
        assert done.code == 0
        assert not imported(done) & (HEAVY | OF_SKLEARN)
