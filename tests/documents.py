"""Running what a page of the documentation shows, and comparing it with what comes out.

A page's ```python and ```console blocks are run in order. What a ``console`` block shows below a
command is its output; a ```text block directly below a ```python block is what that prints. A line
of "…" stands for lines left out. Words must be the same, and numbers alike: within one unit of the
last digit shown or two per cent, or, below a comment ``<!-- varies -->`` (a release draws its noise
again), any; a table without left-out lines may then have another order. The commands of a block below
``<!-- exit code 3 -->`` end with that code; then what is shown may be on stderr.
"""

import contextlib
import io
import math
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"^(?:<!-- (varies)?(?:, )?(?:exit code (\d+))? -->\n)?```(\w+)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_DIGEST = re.compile(r"\b[0-9a-f]{8}\b")
_LEFT_OUT = "…"
# The folder that pages show in place of the one they run in.
FOLDER = "/home/you/patients"


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    varies: bool
    code: int


def blocks(page: Path) -> list[Block]:
    return [
        Block(kind=kind, text=text, varies=bool(varies), code=int(code or 0))
        for varies, code, kind, text in _BLOCK.findall(page.read_text())
    ]


def run(page: Path, folder: Path, program: Callable, names: dict | None) -> int:
    """Run the page's blocks in ``folder``, which is the current one; how many were compared.

    ``names``: those that Python has; None leaves its blocks out.
    """
    compared, printed = 0, None
    for block in blocks(page):
        if block.kind == "python" and names is not None:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block.text, page.name, "exec"), names)
            printed = out.getvalue()
            continue
        if block.kind == "text" and printed is not None:
            compare(block.text, printed.replace(str(folder), FOLDER), block.varies, page.name)
            compared += 1
        if block.kind == "console":
            for command, shown in commands(block.text):
                done = program(*shlex.split(command)[1:])
                assert done.code == block.code, (command, done)
                if shown.strip():
                    printed = (done.out or done.err).replace(str(folder), FOLDER)
                    compare(shown, printed, block.varies, command)
                    compared += 1
        printed = None
    return compared


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what is shown below it."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        assert command.startswith("expost "), command
        yield command, shown


def compare(shown: str, real: str, varies: bool, where: str) -> None:
    """Raise unless ``real`` reads as ``shown``."""
    lines = _lines(real)
    if varies and _LEFT_OUT not in _lines(shown):
        shape = sorted(_shape(line, varies) for line in lines)
        assert shape == sorted(_shape(line, varies) for line in _lines(shown)), f"{where}\n{real}"
        return
    at, fixed = 0, True
    for expected in _lines(shown):
        if expected == _LEFT_OUT:
            fixed = False
            continue
        starts = [at] if fixed else range(at, len(lines))
        at = next((i for i in starts if i < len(lines) and alike(expected, lines[i], varies)), -1)
        assert at >= 0, f"{where}\nshown: {expected}\nreal:\n{real}"
        at, fixed = at + 1, True
    assert at == len(lines) or not fixed, f"{where}\nnot shown: {lines[at:]}"


def _lines(text: str) -> list[str]:
    """Lines with single spaces (columns are as wide as their numbers), without empty ones."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and not set(line) <= {"-"}]


def _shape(line: str, varies: bool) -> str:
    """The line without its numbers and, where they vary, without the digests of releases."""
    return _NUMBER.sub("#", _DIGEST.sub("#", line) if varies else line)


def alike(shown: str, real: str, varies: bool) -> bool:
    if _shape(shown, varies) != _shape(real, varies):
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(real), strict=True)
    return varies or all(_close(first, other) for first, other in pairs)


def _close(shown: str, real: str) -> bool:
    first, other = (float(number.replace(",", "")) for number in (shown, real))
    digits = len(shown.partition("e")[0].partition(".")[2])
    unit = 10.0**-digits * (1 if "e" not in shown else 10.0 ** int(shown.partition("e")[2]))
    return math.isclose(first, other, rel_tol=0.02, abs_tol=1.001 * unit if digits else 0.0)
