"""The integrations run as they stand: the scripts of both pipelines, and the MLflow example."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from expost.errors import InvalidInput
from expost.policy import Policy
from gates import edited_audit, make_gate
from test_cli_check import assert_clean, keys_of

ROOT = Path(__file__).parent.parent
INTEGRATIONS = ROOT / "integrations"
ACTION = yaml.safe_load((INTEGRATIONS / "github" / "action.yml").read_text())
GITLAB = yaml.safe_load((INTEGRATIONS / "gitlab" / "expost.gitlab-ci.yml").read_text())
POLICY = """
[guarantee]
epsilon = 1
[rows]
certainty = 0.99
[attacks]
required = ["lira-online"]
auc = 0.98
"""
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = make_gate(tmp_path_factory.mktemp("gate"))
    (folder / "pass.toml").write_text(POLICY)
    (folder / "fail.toml").write_text(POLICY.replace("epsilon = 1", "epsilon = 0.5"))
    (folder / "mistake.toml").write_text(POLICY.replace("epsilon = 1", "epsilom = 1"))
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a job: this expost on the PATH, and a pip that only records."""
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    scripts = {
        "python": f'printf "%s\\n" "$@" >> "{folder / "installed"}"',
        "expost": f'exec "{sys.executable}" -c "from expost.cli.main import program; program()" "$@"',
    }
    for name, script in scripts.items():
        stub = stubs / name
        stub.write_text(f"#!/bin/sh\n{script}\n")
        stub.chmod(0o755)
    path = os.pathsep.join([str(stubs), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "COLUMNS": "200", **more}


def run_action(folder: Path, work: Path, **given: str) -> tuple[int, str]:
    """Run the steps of the composite action as GitHub does; return the exit code and the log."""
    inputs = {
        name: given.get(name.replace("-", "_"), str(each.get("default", "")))
        for name, each in ACTION["inputs"].items()
    }
    log = ""
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        # No text of a caller becomes a part of a script.
        assert "${{" not in step["run"]
        own = {
            name: INPUT.sub(lambda match: inputs[match[1]], str(value))
            for name, value in step.get("env", {}).items()
        }
        files = {name: str(work / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env=environment(work, **own, **files),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        log += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, log
    return 0, log


@pytest.mark.parametrize(
    ("policy", "fail_on", "code"),
    [
        ("pass.toml", "", 0),
        ("fail.toml", "", 3),
        ("pass.toml", "delta>1e-4\nr2<0.5\n", 4),
        ("", "epsilon>0.5", 3),
        ("mistake.toml", "", 2),
    ],
)
def test_the_github_action_runs(made, tmp_path, policy, fail_on, code):
    results = "profile\naudit\n"
    files = {"junit": str(tmp_path / "o.xml"), "markdown": str(tmp_path / "o.md")}
    ended, log = run_action(
        made, tmp_path, results=results, policy=policy, fail_on=fail_on, **files
    )
    assert ended == code, log
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"exit-code={code}\n"
    assert (tmp_path / "installed").read_text().splitlines()[-1] == "expost"
    written = tmp_path / "GITHUB_STEP_SUMMARY"
    assert written.exists() is (code != 2)
    if code != 2:
        assert written.read_text() == (tmp_path / "o.md").read_text()
        suites = ElementTree.parse(tmp_path / "o.xml").getroot()
        assert (suites.get("failures") != "0") is (code == 3)
        assert_clean(log + written.read_text() + (tmp_path / "o.xml").read_text(), made)


def test_the_inputs_of_the_action_are_no_code(made, tmp_path):
    hostile = f"profile; touch {tmp_path / 'run'}\n$(touch {tmp_path / 'run'})\n"
    for given in (
        {"results": hostile, "policy": "pass.toml"},
        {"results": "profile", "fail_on": hostile},
    ):
        ended, _ = run_action(made, tmp_path, package="", **given)
        assert ended == 2
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "installed").exists()


@pytest.mark.parametrize(
    ("policy", "fail_on", "code"),
    [("pass.toml", "", 0), ("fail.toml", "", 3), ("", "r2<0.5", 4), ("mistake.toml", "", 2)],
)
def test_the_gitlab_job_runs(made, tmp_path, policy, fail_on, code):
    job = GITLAB[".expost-check"]
    variables = {
        **job["variables"],
        "EXPOST_RESULTS": f"{made / 'profile'} {made / 'audit'}",
        "EXPOST_POLICY": str(made / policy) if policy else "",
        "EXPOST_FAIL_ON": fail_on,
    }
    script = "\n".join(["set -eo pipefail", *job["before_script"], *job["script"]])
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment(tmp_path, **variables),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    junit = tmp_path / job["artifacts"]["reports"]["junit"]
    assert junit.exists() is (code != 2)
    for name in job["artifacts"]["paths"]:
        assert (tmp_path / name).exists() is (code != 2)
    if code != 2:
        assert_clean(done.stdout + done.stderr + junit.read_text(), made)


# -- MLflow -----------------------------------------------------------------------------------------


def example():
    path = INTEGRATIONS / "mlflow" / "log_expost.py"
    spec = importlib.util.spec_from_file_location("log_expost", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.log_expost


class Recorder:
    """What stands for MLflow: everything that is logged, as text."""

    def __init__(self):
        self.logged: dict[str, object] = {}

    def log_param(self, name, value):
        # MLflow refuses a parameter that changes.
        assert self.logged.get(name, value) == value
        self.logged[name] = value

    def log_metric(self, name, value):
        assert isinstance(value, float)
        self.logged[name] = value

    set_tag = log_param


def test_public_scalars_are_logged_by_default(made):
    recorder = Recorder()
    results = [made / "profile", made / "audit"]
    outcome = example()(results, made / "pass.toml", tracking=recorder)
    assert outcome.exit_code == 0
    assert recorder.logged["expost.epsilon"] == 1.0
    assert recorder.logged["expost.n"] == 60
    assert recorder.logged["expost.verdict.guarantee.epsilon"] == "satisfied"
    assert recorder.logged["expost.verdict.attacks.required.lira-online"] == "satisfied"
    # The verdict on all limits depends on curator-only figures.
    assert "expost.verdict" not in recorder.logged
    assert not [name for name in recorder.logged if "rows" in name or "auc" in name]
    assert_clean(json.dumps(recorder.logged), made)


def test_a_refuted_guarantee_is_logged_for_the_curator_alone(made, tmp_path):
    refuted = edited_audit(made, tmp_path / "refuted", guarantee_refuted=True)
    (tmp_path / "policy.toml").write_text("[guarantee]\nepsilon = 1\n")
    for audience in ("public", "curator-only"):
        recorder = Recorder()
        given = ([made / "profile", refuted], tmp_path / "policy.toml")
        outcome = example()(*given, audience=audience, tracking=recorder)
        assert outcome.exit_code == 3
        verdicts = [name for name in recorder.logged if name.startswith("expost.verdict")]
        assert bool(verdicts) is (audience == "curator-only")


@pytest.mark.parametrize("limits", [("epsilon>0.5", "epsilon>2"), ("epsilon>2", "epsilon>0.5")])
def test_the_worse_of_two_verdicts_of_one_name_is_logged(made, limits):
    recorder = Recorder()
    recorder.set_tag = recorder.logged.__setitem__
    outcome = example()([made / "profile"], Policy.of(*limits), tracking=recorder)
    assert outcome.exit_code == 3
    assert recorder.logged["expost.verdict.guarantee.epsilon"] == "violated"


def test_a_limit_of_a_level_is_named_once(made, tmp_path):
    recorder = Recorder()
    (tmp_path / "policy.toml").write_text(
        "[guarantee]\ncomposed_epsilon = 3\ncomposed_delta = 1e-5\n"
    )
    results = [made / "profile", made / "people.ledger.CURATOR-ONLY.json"]
    example()(results, tmp_path / "policy.toml", tracking=recorder)
    assert recorder.logged["expost.verdict.guarantee.composed_epsilon.1e-05"] == "satisfied"


def test_curator_only_scalars_are_logged_on_request(made):
    recorder = Recorder()
    results = [made / "profile", made / "audit"]
    outcome = example()(results, made / "fail.toml", audience="curator-only", tracking=recorder)
    measured = {each.limit.quantity.key: each.measured for each in outcome.findings}
    assert recorder.logged["expost.rows.certainty"] == measured["rows.certainty"]
    assert recorder.logged["expost.attacks.auc"] == measured["attacks.auc"]
    assert recorder.logged["expost.verdict"] == "violated"
    with pytest.raises(ValueError, match="anybody"):
        example()(results, made / "pass.toml", audience="anybody", tracking=recorder)
    with pytest.raises(InvalidInput):
        example()(results, made / "mistake.toml", tracking=recorder)


def test_a_local_store_of_mlflow_holds_no_curator_only_figure(made, tmp_path, monkeypatch):
    """With the real MLflow, where it is installed (docs/dependencies.md)."""
    mlflow = pytest.importorskip(
        "mlflow", reason="MLflow is not installed: pip install mlflow-skinny"
    )
    monkeypatch.chdir(tmp_path)
    # MLflow 3.17 keeps the file store for those who ask for it; its database needs more packages.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    results = [made / "profile", made / "audit"]
    for audience in ("public", "curator-only"):
        store = tmp_path / audience
        mlflow.set_tracking_uri(store.as_uri())
        mlflow.set_experiment("expost")
        with mlflow.start_run() as run:
            example()(results, made / "pass.toml", audience=audience)
        stored = mlflow.get_run(run.info.run_id).data
        assert stored.params["expost.epsilon"] == "1.0"
        assert stored.metrics["expost.guarantee.epsilon"] == 1.0
        files = [path for path in store.rglob("*") if path.is_file()]
        text = "\n".join(path.read_text(errors="replace") for path in files)
        assert "expost.verdict.guarantee.epsilon" in "\n".join(map(str, files))
        if audience == "public":
            assert "expost.rows.certainty" not in stored.metrics
            shown = "\n".join((*map(str, stored.params.items()), *map(str, stored.tags.items())))
            assert_clean(shown, made)
            # Times and identifiers of the store are long numbers of their own.
            values = [path.read_text() for path in files if path.parent.name in ("params", "tags")]
            assert_clean("\n".join(values), made)
            assert_clean("\n".join(map(repr, stored.metrics.values())), made)
            assert not [key for key in keys_of(made) if key in text]
        else:
            assert stored.metrics["expost.rows.certainty"] > 0.5
            # Power: the same test sees the figures where they are.
            with pytest.raises(AssertionError):
                assert_clean("\n".join(map(repr, stored.metrics.values())), made)
