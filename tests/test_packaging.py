"""What is installed and what is sent: every package imports, the wheel, and the sdist.

Whether the bounds and the interpreters were tried is in test_environments.py: that test needs the
evidence, which these tests help to make.
"""

import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import environments  # noqa: E402 (a tool, not a package)

# Of git's files the sdist leaves out what only our own server needs, and adds its metadata.
LEFT_OUT = {".ci/run"}
ADDED = {"PKG-INFO"}


@pytest.mark.parametrize("name", environments.oldest())
def test_every_package_can_be_imported(name):
    """Also those that only a benchmark or the site uses, and no other quick test."""
    modules = [
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if name in map(environments.normalised, names) and not module.startswith("_")
    ]
    assert modules
    importlib.import_module(modules[0])


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The folder of an sdist that was built without a network, and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    archive.unlink()
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_the_package_alone(wheel):
    """Papers, tests, tools and benchmarks are for a checkout."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    source = ROOT / "src"
    expected = {p.relative_to(source).as_posix() for p in (source / "expost").rglob("*.py")}
    assert expected <= set(names)
    assert all(name.startswith("expost/") for name in names)
    assert not [name for name in names if "papers" in name or "reproduce" in name]


def test_the_description_needs_no_other_file(wheel):
    """The page of an index shows it alone; twine checks it in test_install.py."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    head, _, description = text.partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    readme = (ROOT / "README.md").read_text()
    assert re.findall("^#+ .*", description, re.M) == re.findall("^#+ .*", readme, re.M)
    assert [link for link in re.findall(r"\]\(([^)]*)\)", description) if ":" not in link] == []
    assert "<!--" not in description


def paths_in(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_the_sdist_has_what_make_test_needs(sdist):
    paths = paths_in(sdist)
    for name in (
        "Makefile",
        "mkdocs.yml",
        "pyproject.toml",
        "bench/scale.py",
        "papers/datasets.py",
    ):
        assert name in paths
    for name in environments.QUICK:
        assert (sdist / name).exists(), name


def test_the_sdist_has_the_files_that_git_lists(sdist):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: git cannot list its files")
    # With those that are new and not yet added, and without those that are deleted.
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = {name for name in listed.splitlines() if (ROOT / name).exists()}
    assert paths_in(sdist) == expected - LEFT_OUT | ADDED
