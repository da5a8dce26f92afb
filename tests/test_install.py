"""The ways to install: the steps of the release workflow, the Dockerfile and the conda recipe run as written."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import images

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PYPROJECT["project"]["version"]
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
RECIPE = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
GENERATED = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "demo-report", "__pycache__", ".*_cache", ".hypothesis"
)


# -- the release ------------------------------------------------------------------------------------


def steps(job: str) -> list[dict]:
    return [step for step in RELEASE["jobs"][job]["steps"] if "run" in step]


def run_step(step: dict, folder: Path, **more: str) -> subprocess.CompletedProcess:
    """Run a step as GitHub does, with this interpreter as ``python`` and no checkout on its path."""
    stubs = folder.parent / "stubs"
    stubs.mkdir(exist_ok=True)
    (stubs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (stubs / "python").chmod(0o755)
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    path = os.pathsep.join([str(stubs), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**inherited, "PATH": path, **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
    )


def test_a_release_is_built_checked_and_tested_on_the_wheel(tmp_path):
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=GENERATED)
    for step in steps("build"):
        done = run_step(step, checkout, GITHUB_REF_NAME=f"v{VERSION}")
        assert done.returncode == 0, (step["name"], done.stdout, done.stderr)
    built = sorted(path.name for path in (checkout / "dist").iterdir())
    assert built == [f"expost-{VERSION}-py3-none-any.whl", f"expost-{VERSION}.tar.gz"]
    # The second job has the artifacts alone.
    machine = tmp_path / "machine"
    shutil.copytree(checkout / "dist", machine / "dist")
    shutil.rmtree(checkout)
    for step in steps("test"):
        done = run_step(step, machine)
        assert done.returncode == 0, (step["name"], done.stdout, done.stderr)
    python = machine / ".release" / "wheel" / "bin" / "python"
    code = "import expost, importlib.util as u; print(expost.__file__, u.find_spec('pytest'))"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=machine).stdout
    assert str(machine) in shown
    assert "None" in shown


def test_a_tag_of_another_version_is_refused(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    done = run_step(steps("build")[0], folder, GITHUB_REF_NAME="v99.0")
    assert done.returncode == 1
    assert VERSION in done.stderr


def test_only_a_tested_release_is_published_and_without_a_password():
    jobs = RELEASE["jobs"]
    assert RELEASE[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true
    assert (jobs["test"]["needs"], jobs["publish"]["needs"]) == ("build", "test")
    assert RELEASE["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "secrets." not in text
    # No text from outside becomes a part of a script.
    assert all("${{" not in step["run"] for job in jobs for step in steps(job))
    tried = {text.rpartition(" ")[2] for text in PYPROJECT["project"]["classifiers"]}
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) <= tried


# -- pipx -------------------------------------------------------------------------------------------


def test_pipx_runs_the_command_of_the_readme(tmp_path):
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=GENERATED)
    (command,) = re.findall(r"`(pipx run [^`]*)`", (ROOT / "README.md").read_text())
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "pipx"]
    subprocess.run(pip, check=True, capture_output=True)
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    homes = {"PIPX_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    done = subprocess.run(
        command.split(),
        env={**kept, **homes, "PATH": path},
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "At ε = 1 an attacker gets at most 73.2 % certain" in done.stdout


# -- conda ------------------------------------------------------------------------------------------


def requirement(text: str) -> tuple[str, str]:
    name, _, bound = re.sub(r"\s+", "", text).partition(">=")
    return name, bound


def test_the_recipe_requires_what_the_package_requires():
    project = PYPROJECT["project"]
    expected = dict(map(requirement, project["dependencies"]))
    # conda-forge splits matplotlib: the part without windows is enough.
    expected["matplotlib-base"] = expected.pop("matplotlib")
    expected["python"] = requirement(f"python{project['requires-python']}")[1]
    assert dict(map(requirement, RECIPE["requirements"]["run"])) == expected
    (backend,) = map(requirement, PYPROJECT["build-system"]["requires"])
    assert backend in map(requirement, RECIPE["requirements"]["host"])


def test_the_recipe_is_of_this_version_and_has_its_command():
    ((name, target),) = PYPROJECT["project"]["scripts"].items()
    assert RECIPE["build"]["python"]["entry_points"] == [f"{name} = {target}"]
    assert RECIPE["context"]["version"] == VERSION
    assert RECIPE["about"]["license"] == PYPROJECT["project"]["license"]
    assert RECIPE["about"]["summary"] == PYPROJECT["project"]["description"]
    assert (ROOT / "conda" / RECIPE["source"]["path"] / "pyproject.toml").exists()


def test_the_commands_that_test_the_recipe(tmp_path):
    imports, scripts = RECIPE["tests"]
    code = "".join(f"import {name}\n" for name in imports["python"]["imports"])
    subprocess.run([sys.executable, "-c", code], check=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in scripts["script"]:
        shell = ["bash", "-euc", line]
        done = subprocess.run(
            shell, env={**os.environ, "PATH": path}, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, (line, done.stderr)


# -- Docker -----------------------------------------------------------------------------------------


def may_mount(folder: Path) -> bool:
    """Whether an overlay can be mounted here: it needs Linux, root and a kernel that allows it."""
    if shutil.which("unshare") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()
    layers = f"lowerdir=/,upperdir={folder / 'upper'},workdir={folder / 'work'}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", layers, str(folder / "root")]
    done = subprocess.run(["unshare", "--mount", *mount], capture_output=True)
    return done.returncode == 0


def test_the_image_runs_the_command_as_a_user(tmp_path):
    trial, scratch = tmp_path / "trial", tmp_path / "scratch"
    trial.mkdir()
    if not may_mount(trial):
        pytest.skip("a Dockerfile is executed by root on Linux alone (tests/images.py)")
    build = [sys.executable, str(ROOT / "tests" / "images.py"), str(ROOT), str(scratch)]
    runs = ["--", "--version", "--", "demo", "--out", "demo", "--", "verify", "demo"]
    done = subprocess.run(["unshare", "--mount", *build, *runs], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["user"], made["uid"]) == ("expost", 10001)
    # The last one is refused: a profile has no manifest.
    assert [run["code"] for run in made["runs"]] == [0, 0, 2]
    assert VERSION in made["runs"][0]["out"]
    assert "/data/demo/report.CURATOR-ONLY.html" in made["runs"][1]["out"]
    assert made["files"] == {"demo": 10001}


@pytest.mark.parametrize(("extras", "shown"), [("", "x.whl"), ("models", "x.whl[models]")])
def test_the_image_takes_extras(tmp_path, extras, shown):
    made = images.instructions((ROOT / "Dockerfile").read_text())
    assert ("ARG", "EXTRAS=") in made
    (line,) = (rest for word, rest in made if word == "RUN" and "EXTRAS" in rest)
    (tmp_path / "x.whl").touch()
    # The requirement as the shell of the image expands it.
    text = line.partition("--no-cache-dir ")[2].replace("/wheels", str(tmp_path))
    shell = ["/bin/sh", "-c", f"echo {text}"]
    done = subprocess.run(shell, env={"EXTRAS": extras}, capture_output=True, text=True)
    assert done.stdout == f"{tmp_path}/{shown}\n"


def test_the_image_is_small_and_has_no_root():
    made = images.instructions((ROOT / "Dockerfile").read_text())
    stages = [rest for word, rest in made if word == "FROM"]
    assert [stage.partition(" ")[0] for stage in stages] == ["python:3.12-slim-bookworm"] * 2
    last = dict(made[-[word for word, _ in made][::-1].index("FROM") - 1 :])
    assert last["USER"] == "expost"
    assert last["VOLUME"] == "/data"
    assert json.loads(last["ENTRYPOINT"]) == ["expost"]
    # The last stage takes nothing from the context.
    assert last["COPY"].startswith("--from=build ")


@pytest.mark.parametrize("path", ["tests", "docs", ".git", "people.csv", "tools"])
def test_the_context_of_the_image_has_no_other_files(path):
    assert not images.allowed((ROOT / ".dockerignore").read_text(), path)
