"""The bounds and interpreters of pyproject.toml are those that were tried (docs/evidence)."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from expost.jobs.doctor import satisfies

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import environments  # noqa: E402 (a tool, not a package)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TRIED = json.loads(environments.EVIDENCE.read_text("utf-8"))["figures"]
PYTHONS = [
    text.removeprefix("Programming Language :: Python :: ")
    for text in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
]


def test_the_interpreters_of_the_classifiers_were_tried():
    assert {"3.11", "3.12", "3.13"} <= set(PYTHONS)
    assert set(TRIED) == {"oldest", *PYTHONS}
    for python in PYTHONS:
        assert TRIED[python]["python"].startswith(f"{python}.")
        assert satisfies(python, PROJECT["requires-python"])
    oldest = min(PYTHONS, key=lambda python: int(python.removeprefix("3.")))
    assert PROJECT["requires-python"] == f">={oldest}"
    assert TRIED["oldest"]["python"].startswith(f"{oldest}.")


@pytest.mark.parametrize("name", TRIED)
def test_every_environment_passed(name):
    counts = TRIED[name]["counts"]
    assert counts["failures"] == counts["errors"] == 0
    assert counts["passed"] > 2000
    assert counts["skipped"] < 20


@pytest.mark.parametrize(("name", "bound"), environments.oldest().items())
def test_a_lower_bound_is_the_version_that_was_tried(name, bound):
    version = TRIED["oldest"]["packages"][name]
    assert satisfies(version, f"=={bound}"), f"{name}>={bound}, and {version} was tried"


# Added after the newer interpreters were recorded; a new record makes the test below fail until the
# name is removed here. Their lower bounds were tried (above), the newest versions are in every run.
ADDED_SINCE = frozenset({"ipykernel", "lightgbm", "nbclient", "onnxruntime"}) | {
    *("skl2onnx", "skops", "xgboost-cpu")
}


@pytest.mark.parametrize("python", PYTHONS)
def test_the_newer_environments_keep_the_bounds(python):
    """The checkers too, of which only the version in use was tried."""
    assert not ADDED_SINCE & set(TRIED[python]["packages"])
    for requirement in environments.requirements():
        if requirement.name not in environments.WITH_TORCH | ADDED_SINCE:
            version = TRIED[python]["packages"][requirement.name]
            assert satisfies(version, requirement.bounds), (requirement, version)
    for name in environments.CHECKERS:
        (bounds,) = {r.bounds for r in environments.requirements() if r.name == name}
        assert bounds.startswith(">="), name
