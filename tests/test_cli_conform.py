"""``expost conform``: a trainer of the current folder, and exit codes."""

import json

import pytest

from program import refused

TRAINER = """
import numpy as np

CLIP, SIGMA = 1.0, 1.1


def trainer(task, sigma=SIGMA):
    rng = np.random.default_rng()
    theta = dict(task.parameters)
    rows = len(task.X)
    while True:
        batch = rng.random(rows) < task.rate
        gradients = task.gradients(task.X[batch], task.y[batch])
        norms = np.sqrt(sum((g**2).sum(axis=1) for g in gradients.values()))
        factors = np.minimum(1.0, CLIP / np.maximum(norms, 1e-300))
        for name, g in gradients.items():
            noise = sigma * CLIP * rng.standard_normal(g.shape[1])
            theta[name] = theta[name] - (factors @ g + noise) / 40.0
        yield theta


def quiet(task):
    return trainer(task, sigma=0.5)
"""
CLAIMS = (
    *("--arrays", "numpy", "--clip", "1", "--noise-multiplier", "1.1", "--sampling-rate", "0.25"),
    *("--divisor", "40", "--not-finite", "absent"),
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "own_steps.py").write_text(TRAINER)
    return tmp_path


def test_a_trainer_of_the_folder_is_checked(program, here):
    done = program("conform", "own_steps:trainer", *CLAIMS, "--out", "page")
    assert (done.code, done.err) == (0, "")
    assert "conforms to its claims" in done.out
    names = {path.name for path in (here / "page").iterdir()}
    assert {"report.html", "report.md", "summary.json"} <= names
    done = program("conform", "own_steps:quiet", *CLAIMS, "--json")
    assert done.code == 3
    content = json.loads(done.out)
    assert content["conforms"] is False
    wrong = [each for each in content["findings"] if each["verdict"] == "violates"]
    assert [each["check"] for each in wrong] == ["noise scale"]
    assert wrong[0]["figures"]["noise_multiplier_high"] < 0.6


def test_a_trainer_that_cannot_be_run_is_refused(program, here):
    (here / "broken.py").write_text("raise OSError('no')\nnumber = 3\n")
    (here / "script.py").write_text("import sys\nsys.exit(0)\n")
    (here / "plain.py").write_text(
        "import sys\n"
        "number = 3\n"
        "def stops(task):\n    return iter(())\n"
        "def returns(task):\n    return 3\n"
        "def exits(task):\n    sys.exit(0)\n    yield\n"
    )
    for name, words in {
        "trainer": "module:function",
        "own_steps:nothing": "nothing",
        "broken:number": "OSError",
        "plain:number": "not a function",
        "plain:stops": "yielded 0 steps",
        "plain:returns": "raised TypeError at step 1",
        # The exit code would be that of a trainer which conforms.
        "plain:exits": "raised SystemExit at step 1",
        "script:trainer": "SystemExit",
    }.items():
        done = program("conform", name, *CLAIMS, "--out", "none")
        refused(done, here / "none", words)
