"""The notebook about Opacus runs in a new kernel of the second environment."""

from test_notebooks import PATHS, WITH_TORCH, run_tool


def test_the_notebook_runs_in_an_empty_folder():
    (path,) = [path for path in PATHS if path.stem in WITH_TORCH]
    done = run_tool(path)
    assert done.returncode == 0, done.stdout + done.stderr
