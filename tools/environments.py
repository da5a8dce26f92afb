"""The oldest versions that pyproject.toml allows, and the quick tests in an environment.

    python tools/environments.py oldest              prints name==bound, for pip's --constraint
    python tools/environments.py test NAME [--record]  runs the quick tests with this interpreter

``make test-oldest``, ``make test-python`` and ``make environments`` call it. With ``--record`` the
versions and the counts of a run that passed become the entry NAME of
docs/evidence/environments.json. The first command needs the standard library alone, because it
runs before anything is installed.
"""

import argparse
import datetime
import importlib.metadata
import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "tests"))
from expost.jobs.doctor import Requirement, parse_requirement  # noqa: E402 (needs the path)

EVIDENCE = ROOT / "docs" / "evidence" / "environments.json"
# A few minutes that use every dependency: the complete suite takes a quarter of an hour.
QUICK = (
    "tests/accounting/test_gaussian.py",
    "tests/auditing/test_gradients.py",
    "tests/auditing/test_model_files.py",
    "tests/auditing/test_targets.py",
    "tests/browser/test_notebook.py",
    "tests/data",
    "tests/engine",
    "tests/mechanisms/test_grid.py",
    "tests/noise/test_noise.py",
    "tests/report/test_drawing.py",
    "tests/report/test_stored.py",
    "tests/report/test_svg.py",
    "tests/risk/test_calibrate.py",
    "tests/test_cli.py",
    "tests/test_cli_audit_models.py",
    "tests/test_cli_doctor.py",
    "tests/test_cli_help.py",
    "tests/test_docs.py",
    "tests/test_estimators.py",
    "tests/test_foreign.py",
    "tests/test_labels.py",
    "tests/test_notebooks.py",
    "tests/test_packaging.py",
    "tests/test_progress.py",
    "tests/test_readme.py",
    "tests/test_table.py",
    "tests/test_validate.py",
)
# Not in the oldest environment. Checkers judge and format differently in each version, so that
# their bound is the version in use; torch is a gigabyte, and has an environment of its own.
CHECKERS = frozenset({"mypy", "ruff", "scipy-stubs"})
WITH_TORCH = frozenset({"opacus", "peft", "torch", "transformers"})


def main() -> int:
    """Run the command that the arguments name; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("oldest", help="print the oldest allowed versions as constraints")
    test = commands.add_parser("test", help="run the quick tests with this interpreter")
    test.add_argument("name", help="the entry of docs/evidence/environments.json")
    test.add_argument("--record", action="store_true", help="also write docs/evidence")
    options = parser.parse_args()
    if options.command == "oldest":
        for name, bound in oldest().items():
            print(f"{name}=={bound}")
        return 0
    code, counts = run_quick_tests()
    print(f"{options.name}: {counts}")
    if code == 0 and options.record:
        record(options.name, counts)
    return code


def requirements() -> Iterator[Requirement]:
    """Yield what pyproject.toml requires, for use and for every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    for text in (*project["dependencies"], *(text for extra in extras for text in extra)):
        requirement = parse_requirement(text)
        if requirement is None:
            raise ValueError(f"pyproject.toml: {text!r} is not a requirement.")
        yield requirement


def oldest() -> dict[str, str]:
    """Return the lower bound of each package of the oldest environment; each must have one."""
    bounds = {}
    for requirement in requirements():
        name, bound = requirement.name, requirement.bounds
        if name in CHECKERS | WITH_TORCH:
            continue
        if not bound.startswith(">=") or "," in bound:
            raise ValueError(f"pyproject.toml: {name} needs a lower bound alone, not {bound!r}.")
        if bounds.setdefault(name, bound.removeprefix(">=")) != bound.removeprefix(">="):
            raise ValueError(f"pyproject.toml: {name} has two lower bounds.")
    return dict(sorted(bounds.items()))


def normalised(name: str) -> str:
    """Return a distribution's name as pip compares it: jinja2 and not Jinja2."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run_quick_tests() -> tuple[int, dict[str, int]]:
    """Run the quick tests; return pytest's exit code and the counts.

    An expected failure counts as skipped, as JUnit's format has it.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-n", "2", f"--junit-xml={report}"]
        # These files are quick here even if `make test` leaves them to `make test-full`.
        command += ["-m", "not long", *QUICK]
        code = subprocess.run(command, cwd=ROOT).returncode
        (suite,) = ElementTree.parse(report).getroot()
    counts = {key: int(suite.attrib[key]) for key in ("failures", "errors", "skipped")}
    return code, {"passed": int(suite.attrib["tests"]) - sum(counts.values()), **counts}


def record(name: str, counts: dict[str, int]) -> None:
    """Replace the entry ``name`` of the evidence; the other entries stay as they are."""
    import evidence

    entries = json.loads(EVIDENCE.read_text("utf-8"))["figures"] if EVIDENCE.exists() else {}
    entries[name] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "counts": counts,
        "packages": {
            normalised(distribution.name): distribution.version
            for distribution in importlib.metadata.distributions()
            if distribution.name != "expost"
        },
    }
    evidence.record(EVIDENCE.stem, command="make environments", seed=None, figures=entries)


if __name__ == "__main__":
    sys.exit(main())
