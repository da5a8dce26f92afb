"""What starting expost must not import: programs wait for it, and ``--help`` most of all."""

import subprocess
import sys

import numpy as np
import pytest

from program import PROGRAM, finished, imported

HEAVY = {"dp_accounting", "matplotlib", "dask", "distributed", "torch"}
# scikit-learn imports scipy.stats and pandas itself; commands without an estimator need neither.
OF_SKLEARN = {"scipy.stats", "scipy.signal", "pandas", "sklearn", "joblib"}
# Of scikit-learn, what only attacks need.
SUBMODULES = {"sklearn.tree", "sklearn.ensemble", "sklearn.neighbors"}

# What only audits, figures and models of other libraries need.
UNUSED = {
    "sklearn.linear_model",
    "sklearn.svm",
    "expost.auditing.references",
    "expost.auditing.audit",
    "expost.defences",
    "expost.foreign.models",
    "expost.report.drawing",
}


def modules_after(code):
    """Return the names of all modules after ``code`` ran in a new process."""
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_imports_no_library():
    libraries = {"numpy", "scipy", "pyarrow", "typer", "rich", "jinja2"}
    assert not modules_after("import expost") & (HEAVY | OF_SKLEARN | libraries)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import expost.data", HEAVY | OF_SKLEARN | {"pyarrow.dataset"}),
        ("import expost.risk", HEAVY | OF_SKLEARN | {"pyarrow"}),
        ("from expost import identifiability", HEAVY | OF_SKLEARN),
        ("from expost import PrivateLogisticRegression", HEAVY | SUBMODULES),
        ("from expost import profile, choose_epsilon, publish", HEAVY | OF_SKLEARN),
        ("import expost.training", HEAVY | OF_SKLEARN | UNUSED),
        ("import expost.jobs.epsilon, expost.jobs.profile", HEAVY | OF_SKLEARN | UNUSED),
        ("import expost.jobs.publish", HEAVY | OF_SKLEARN | UNUSED),
        ("import expost.report, expost.profiles.profile", HEAVY | OF_SKLEARN | UNUSED),
    ],
)
def test_modules_import_what_they_need(code, absent):
    assert not modules_after(code) & absent


@pytest.mark.parametrize("command", ["epsilon", "profile", "publish", "risk", "audit"])
def test_the_help_of_a_command_imports_no_numerics(command):
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM), command, "--help"])
    assert done.code == 0
    numerics = {"numpy", "scipy", "sklearn", "pyarrow", "pandas", "jinja2"}
    assert not imported(done) & (HEAVY | numerics)


def test_the_help_of_the_program_builds_no_options():
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM), "--help"])
    assert done.code == 0
    assert "expost.cli.commands" in imported(done)
    assert not imported(done) & {"expost.jobs.requests", "importlib.metadata", "numpy"}


def test_the_package_needs_no_typing():
    # Starting Python itself imports less; typing takes as long as all of it.
    before, after = modules_after("pass"), modules_after("import expost")
    assert {name.partition(".")[0] for name in after - before} <= {
        *("__future__", "expost", "importlib", "warnings"),
    }


def test_risk_imports_no_learning():
    command = [sys.executable, "-X", "importtime", str(PROGRAM), "risk"]
    for question in (["--epsilon", "1"], ["--epsilon", "1", "--delta", "1e-6"]):
        done = finished([*command, *question])
        assert done.code == 0
        assert not imported(done) & (HEAVY | OF_SKLEARN)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A CSV file with a number, a level and a label."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("table")
    amount, color = rng.normal(size=300), rng.choice(["blue", "red"], size=300)
    label = np.where(amount + (color == "red") > rng.normal(size=300), "yes", "no")
    lines = [f"{a:.3f},{c},{y}" for a, c, y in zip(amount, color, label, strict=True)]
    path = folder / "table.csv"
    path.write_text("\n".join(["amount,color,label", *lines, ""]))
    return path


def modules_of_command(*arguments):
    """Return the modules that a command has imported, in a new process."""
    done = finished([sys.executable, "-X", "importtime", str(PROGRAM), *map(str, arguments)])
    assert done.code in (0, 3), done
    return imported(done)


# What no command of a table needs, although libraries that it uses offer it. pyarrow looks for
# pandas, and must not find it.
UNUSED_BY_TABLES = {"scipy.optimize", "scipy.fft", "scipy.sparse", "webbrowser", "pandas._libs"}
UNUSED_BY_TABLES |= HEAVY | OF_SKLEARN - {"pandas"}


def test_the_commands_of_a_table_import_no_scikit_learn(table):
    given, folder = (table, "--target", "label"), table.parent
    model = ("--model", folder / "profile" / "model.json")
    for command, options in (("profile", ()), ("epsilon", ()), ("publish", model)):
        out = folder / command
        modules = modules_of_command(command, *given, *options, "--out", out)
        assert "expost.jobs." + command in modules
        needed = {"scipy.optimize", "scipy.fft", "scipy.sparse"} if command == "epsilon" else set()
        assert not modules & (UNUSED_BY_TABLES - needed)
