"""The notebooks of examples/: executed, cleaned, and compared with their sources.

    python tools/notebooks.py                 executes all notebooks, and reports what is wrong
    python tools/notebooks.py --execute       the same, and writes their outputs into the files
    python tools/notebooks.py examples/4-*    these notebooks alone

A notebook is executed in a new kernel of this interpreter, in an empty folder. A file holds the
digest of the cells that its outputs were made from, so that a change of a cell without a new
execution is noticed. Outputs hold no path of the machine, no time and no colour.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SECONDS = 300
# What an output must not hold: folders of a machine, addresses, times of day, escape sequences.
FORBIDDEN = re.compile(
    r"/(?:tmp|root|home|usr|var|opt|Users)/|\b0x[0-9a-f]{6,}|\b\d\d:\d\d:\d\d\b|\x1b|[A-Z]:\\"
)
# A line of progress that its command erased at the end, and other escape sequences.
_ERASED = re.compile(r"\x1b\[2K[^\n]*\n\r?(?:\x1b\[1A\x1b\[2K)+")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_IMAGES = ("image/png", "image/svg+xml")


def main() -> int:
    """Execute the notebooks that the arguments name; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of examples/")
    parser.add_argument("--execute", action="store_true", help="write the outputs")
    options = parser.parse_args()
    wrong = []
    for path in options.notebooks or sorted(EXAMPLES.glob("*.ipynb")):
        stored = read(path)
        executed = execute(stored)
        if options.execute:
            path.write_text(nbformat.writes(executed) + "\n", encoding="utf-8")
            stored = executed
        problems = [*stale(stored), *unfit(stored), *different(stored, executed)]
        print(f"{path.name}: {'; '.join(problems) or 'as stored'}")
        wrong += problems
    return 1 if wrong else 0


def read(path: Path) -> NotebookNode:
    """Return the notebook of a file."""
    return nbformat.read(path, as_version=4)


def execute(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook with the outputs of a new kernel in an empty folder."""
    fresh = nbformat.from_dict(notebook)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own:
        # Sockets in a folder of our own: a kernel on TCP can be reached from outside.
        sockets = {"transport": "ipc", "connection_file": f"{own}/kernel.json"}
        client = NotebookClient(
            fresh,
            kernel_name="python3",
            config=Config(KernelManager=sockets),
            timeout=SECONDS,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=_environment(own))
        return _cleaned(fresh, os.path.realpath(folder))


def _environment(own: str) -> dict[str, str]:
    """Return the environment of a kernel: commands of this interpreter first, and no colours."""
    inherited = {name: text for name, text in os.environ.items() if name != "MPLBACKEND"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**inherited, "PATH": path, "IPYTHONDIR": own, "NO_COLOR": "1"}


def _cleaned(notebook: NotebookNode, folder: str) -> NotebookNode:
    """Return the notebook with what every execution repeats, and nothing else."""
    cells = []
    for index, cell in enumerate(notebook.cells):
        kept = {"id": f"cell-{index}", "metadata": {}, "source": cell.source}
        if cell.cell_type == "code":
            outputs = [_cleaned_output(output, folder) for output in cell.outputs]
            kept |= {"outputs": outputs, "execution_count": cell.execution_count}
        cells.append({"cell_type": cell.cell_type, **kept})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {
        "kernelspec": kernel,
        "language_info": {"name": "python"},
        "expost": {"sources": digest(notebook)},
    }
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return nbformat.from_dict(content)


def _cleaned_output(output: NotebookNode, folder: str) -> dict[str, object]:
    """Return an output with paths relative to the folder, and without the notes of the kernel."""

    def relative(text: str) -> str:
        return text.replace(f"{folder}/", "").replace(folder, ".")

    if output.output_type == "stream":
        text = _ESCAPE.sub("", _ERASED.sub("", output.text))
        lines = (line.rstrip() for line in relative(text).split("\n"))
        return {"output_type": "stream", "name": output.name, "text": "\n".join(lines)}
    kept: dict[str, object] = {"output_type": output.output_type, "metadata": {}}
    kept["data"] = {
        kind: text if kind in _IMAGES else relative(text) for kind, text in output.data.items()
    }
    if output.output_type == "execute_result":
        kept["execution_count"] = output.execution_count
    return kept


def digest(notebook: NotebookNode) -> str:
    """Return the SHA-256 of the cells without their outputs."""
    parts = [f"{cell.cell_type}\0{cell.source}\0" for cell in notebook.cells]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def stale(notebook: NotebookNode) -> list[str]:
    """Report outputs of other cells than those of the notebook."""
    if notebook.metadata.get("expost", {}).get("sources") == digest(notebook):
        return []
    return ["a cell was changed after the execution: run `make notebooks`"]


def unfit(notebook: NotebookNode) -> list[str]:
    """Report outputs that should not be stored: errors, warnings, paths and times."""
    problems = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error" or output.get("name") == "stderr":
                problems.append(f"{cell.id} has an error or a warning")
            texts = [output.get("text", ""), *_texts(output)]
            match = next((m for text in texts if (m := FORBIDDEN.search(text))), None)
            if match:
                problems.append(f"{cell.id} shows {match[0]!r}")
        if cell.cell_type == "code" and not set(cell.metadata) <= {"tags"}:
            problems.append(f"{cell.id} has metadata")
    return problems


def _texts(output: NotebookNode) -> list[str]:
    return [text for kind, text in output.get("data", {}).items() if kind not in _IMAGES]


def different(stored: NotebookNode, executed: NotebookNode) -> list[str]:
    """Report cells whose stored outputs are of other kinds than those of an execution."""
    return [
        f"{first.id} has other kinds of outputs"
        for first, other in zip(stored.cells, executed.cells, strict=True)
        if _kinds(first) != _kinds(other)
    ]


def _kinds(cell: NotebookNode) -> list[tuple[str, ...]]:
    """Return the kinds of a cell's outputs; parts of a stream count as one."""
    kinds: list[tuple[str, ...]] = []
    for output in cell.get("outputs", ()):
        kind = (output.output_type, output.get("name", ""), *sorted(output.get("data", ())))
        if not kinds or kind != kinds[-1] or output.output_type != "stream":
            kinds.append(kind)
    return kinds


if __name__ == "__main__":
    sys.exit(main())
