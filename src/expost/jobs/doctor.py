"""``expost doctor``: installed packages, missing extras and what they prevent, machine features.

Packages are imported in a separate process, because a broken one may crash it. Only the standard
library is imported here, since any other package may be broken. The version bounds are declared in
pyproject.toml alone, and read from the installed metadata. Of markers only ``extra == '…'`` is
understood, which is all that the metadata has (a test checks this).
"""

import json
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import Any

from expost.files.directory import can_replace_locked, lock

__all__ = ["PREVENTS", "Checkup", "Finding", "Requirement", "Status", "checkup"]
__all__ += ["parse_requirement", "satisfies"]

_NEEDED, _EXTRAS, _MACHINE = "Needed", "Extras", "This machine"

# What a missing package of an extra prevents. The extras of developers are not listed.
PREVENTS = {
    "pandas": "to_frame() of results, fetching data sets from OpenML, audits of saved models",
    "polars": "to_frame('polars') of results",
    "adbc-driver-postgresql": "tables from PostgreSQL",
    "lightgbm": "audits of LightGBM files",
    "onnxruntime": "audits of ONNX files",
    "skops": "audits of skops files",
    "dask": "--engine dask, Dask dataframes and arrays",
    "distributed": "--engine dask (a cluster of workers)",
    "cryptography": "--engine dask (workers that others of this machine cannot reach)",
    "torch": "expost.torch (DP-SGD)",
    "opacus": "expost.torch.track (follow an Opacus training)",
    "transformers": "expost.torch.transformers (follow a Trainer of transformers)",
    "peft": "LoRA fine-tuning, as docs/dp-sgd.md shows it",
}
_OF_DEVELOPERS = ("dev", "docs")
# Distributions whose module has another name than they have.
_MODULES = {
    "adbc-driver-postgresql": "adbc_driver_postgresql",
    "scikit-learn": "sklearn",
}
# Seconds that imports may take, cold and all together.
_PATIENCE = 180.0
_LONGEST = 200

# A requirement of the metadata, and the parts of a version.
_SHAPE = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_BOUND = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([^\s,]+)")
# A release is followed by nothing, or by what comes after it; 2.0rc1 and 2.0.dev3 come before 2.0.
_RELEASE = re.compile(r"v?(?:\d+!)?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_BEFORE = re.compile(r"[._-]?(?:a|b|c|rc|alpha|beta|pre|preview|dev)[._-]?\d*", re.IGNORECASE)

# For each module, prints that its import starts, then the error or null, on a stream that no module
# can write to.
_TRY = """
import importlib, json, os, sys
results = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.path[:] = json.loads(sys.argv[1])
for name in sys.argv[2:]:
    print(json.dumps([name, "crashed when imported"]), file=results, flush=True)
    try:
        importlib.import_module(name)
        fault = None
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"
    print(json.dumps([name, fault]), file=results, flush=True)
"""


class Status(Enum):
    """The result of a check."""

    OK = "ok"
    MISSING = "missing"
    TOO_OLD = "too old"
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    needed : bool
        Whether expost requires it.
    versions : str, default=""
        The supported versions.
    detail : str, default=""
        What is wrong and how to fix it, or further information.
    """

    group: str
    name: str
    status: Status
    needed: bool
    version: str | None = None
    versions: str = ""
    detail: str = ""

    @property
    def harms(self) -> bool:
        """Whether something required does not work."""
        return self.needed and self.status is not Status.OK

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return asdict(self) | {"status": self.status.value}


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The results of all checks."""

    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether everything required works."""
        return not any(finding.harms for finding in self.findings)

    @property
    def sentence(self) -> str:
        """The summary in one sentence."""
        harmed = [finding.name for finding in self.findings if finding.harms]
        if harmed:
            return f"Problems with {', '.join(dict.fromkeys(harmed))}; see above."
        absent = [finding.name for finding in self.findings if finding.status is not Status.OK]
        # Extras share packages.
        names = ", ".join(dict.fromkeys(absent))
        return "No problems" + (f"; not available: {names}." if absent else ".")

    def lines(self) -> list[str]:
        """Return a line for each finding, a paragraph for each group."""
        shown = [
            (
                finding.group,
                finding.name,
                finding.version or "",
                finding.status.value,
                "; ".join(part for part in (finding.versions, finding.detail) if part),
            )
            for finding in self.findings
        ]
        widths = [max(len(row[column]) for row in shown) for column in (1, 2, 3)]
        lines: list[str] = []
        for group in (_NEEDED, _EXTRAS, _MACHINE):
            lines += [group]
            for _, name, version, status, rest in (row for row in shown if row[0] == group):
                cells = (name, version, status)
                padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
                lines.append("  " + "  ".join([*padded, rest]).rstrip())
            lines.append("")
        return [*lines, self.sentence]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "well": self.is_well,
            "sentence": self.sentence,
            "findings": [finding.to_json() for finding in self.findings],
        }


def checkup() -> Checkup:
    """Check everything; no finding raises."""
    return Checkup(findings=(*_installed(), *_machine()))


# -- requirements and versions -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A required distribution; ``bounds`` as ">=2.0", ``extra`` None if always required."""

    name: str
    bounds: str
    extra: str | None


def parse_requirement(text: str) -> Requirement | None:
    """Return one ``Requires-Dist`` of the metadata, or None if it cannot be parsed."""
    shaped = _SHAPE.fullmatch(text)
    if shaped is None:
        return None
    name, bounds, marker = shaped.groups()
    extra = _EXTRA.search(marker or "")
    return Requirement(
        name=name, bounds=bounds.replace(" ", ""), extra=None if extra is None else extra[1]
    )


def satisfies(version: str, bounds: str) -> bool:
    """Return whether ``version`` is within all ``bounds``; an unreadable version is not."""
    return all(_keeps(version, sign, bound) for sign, bound in _BOUND.findall(bounds))


def _keeps(version: str, sign: str, bound: str) -> bool:
    wildcard = bound.endswith(".*")
    have, want = _parsed(version), _parsed(bound.removesuffix(".*"))
    if have is None or want is None:
        return False
    begins_so = _begins(have[0], want[0] if wildcard else want[0][:-1])
    match sign:
        case "==":
            return begins_so if wildcard else _compared(have, want) == 0
        case "!=":
            return not begins_so if wildcard else _compared(have, want) != 0
        case "~=":
            return _compared(have, want) >= 0 and begins_so
        case ">=":
            return _compared(have, want) >= 0
        case "<=":
            return _compared(have, want) <= 0
        case ">":
            return _compared(have, want) > 0
        case _:
            return _compared(have, want) < 0


def _parsed(text: str) -> tuple[list[int], bool] | None:
    """Return the numbers of a version, and whether it is no pre-release."""
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        return None
    return [int(part) for part in match[1].split(".")], _BEFORE.match(match[2]) is None


def _compared(have: tuple[list[int], bool], want: tuple[list[int], bool]) -> int:
    """Return −1, 0 or 1; 2.0 and 2.0.0 are equal, and so are rc1 and rc2."""
    for left, right in zip_longest(have[0], want[0], fillvalue=0):
        if left != right:
            return 1 if left > right else -1
    return have[1] - want[1]


def _begins(have: Sequence[int], want: Sequence[int]) -> bool:
    padded = [*have, *[0] * len(want)]
    return padded[: len(want)] == list(want)


# -- packages --------------------------------------------------------------------------------------


def _installed() -> Iterator[Finding]:
    try:
        own = metadata.metadata("expost")
        version = metadata.version("expost")
        parsed = [parse_requirement(text) for text in metadata.requires("expost") or ()]
        python = own["Requires-Python"] or ""
    # Metadata may be absent or damaged in many ways; each is this one finding.
    except Exception as error:  # noqa: BLE001 (see above)
        yield Finding(
            group=_NEEDED,
            name="expost",
            status=Status.BROKEN,
            needed=True,
            detail=f"its metadata cannot be read ({_line(error)}); pip install expost",
        )
        version, parsed, python = None, [], ""
    else:
        yield Finding(group=_NEEDED, name="expost", status=Status.OK, needed=True, version=version)
    yield _python(python)
    requirements = [
        item for item in parsed if item is not None and item.extra not in _OF_DEVELOPERS
    ]
    versions = {item.name: _version(item.name) for item in requirements}
    present = [name for name, version in versions.items() if version is not None]
    faults = _faults([_module(name) for name in present])
    for item in sorted(requirements, key=lambda item: item.extra is not None):
        yield _package(item, versions[item.name], faults.get(_module(item.name)))


def _python(bounds: str) -> Finding:
    version = platform.python_version()
    enough = satisfies(version, bounds)
    return Finding(
        group=_NEEDED,
        name="Python",
        status=Status.OK if enough else Status.TOO_OLD,
        needed=True,
        version=version,
        versions=bounds,
    )


def _version(name: str) -> str | None:
    try:
        # None if the metadata states no version.
        version: str | None = metadata.version(name)
    except Exception:  # noqa: BLE001 (absent or damaged metadata: not installed)
        return None
    return version


def _module(name: str) -> str:
    return _MODULES.get(name, name.replace("-", "_"))


def _package(required: Requirement, version: str | None, fault: str | None) -> Finding:
    name, extra = required.name, required.extra
    status, detail = Status.OK, ""
    if version is None:
        status = Status.MISSING
        detail = f"pip install 'expost[{extra}]'" if extra else f"pip install {name}"
    elif fault is not None:
        status = Status.BROKEN
        detail = f"{fault}; pip install --force-reinstall {name}"
    elif not satisfies(version, required.bounds):
        status = Status.TOO_OLD
        detail = f"pip install --upgrade '{name}{required.bounds}'"
    if extra is not None and status is not Status.OK:
        prevented = PREVENTS.get(name, f"the features of expost[{extra}]")
        detail = f"prevents {prevented}; {detail}"
    return Finding(
        group=_NEEDED if extra is None else _EXTRAS,
        name=name,
        status=status,
        needed=extra is None,
        version=version,
        versions=required.bounds,
        detail=detail,
    )


def _faults(modules: Sequence[str]) -> dict[str, str | None]:
    """Return the import error of each module, None if there is none."""
    faults: dict[str, str | None] = {}
    left = list(modules)
    while left:
        results = _tried(left)
        faults |= results
        if not results:
            return faults | dict.fromkeys(left, "could not be checked")
        # If one crashed the process, the others are imported in another process.
        left = [name for name in left if name not in results]
    return faults


def _tried(modules: Sequence[str]) -> dict[str, str | None]:
    command = [sys.executable, "-P", "-c", _TRY, json.dumps(sys.path), *modules]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    except (OSError, ValueError):
        return {}
    results: dict[str, str | None] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            name, fault = json.loads(line)
        except ValueError:
            continue
        results[name] = None if fault is None else _line(fault)
    return results


def _line(text: object) -> str:
    """Return the text as one printable line."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


# -- the machine -----------------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    checks: tuple[tuple[str, bool, Callable[[], tuple[Status, str]]], ...] = (
        ("randomness", True, _randomness),
        ("file locks", True, _locks),
        ("temporary files", False, _temporary),
        ("terminal", False, _terminal),
        ("browser", False, _browser),
    )
    for name, needed, check in checks:
        try:
            status, detail = check()
        # A check may raise any exception; each is a finding.
        except Exception as error:  # noqa: BLE001 (see above)
            status, detail = Status.BROKEN, _line(error) or type(error).__name__
        yield Finding(group=_MACHINE, name=name, status=status, needed=needed, detail=detail)


def _randomness() -> tuple[Status, str]:
    if secrets.token_bytes(32) == secrets.token_bytes(32):
        return Status.BROKEN, "the operating system returns the same bytes twice; release nothing"
    return Status.OK, "releases draw from the operating system"


def _locks() -> tuple[Status, str]:
    if not can_replace_locked():
        return Status.MISSING, "the ledger cannot be updated, so nothing can be released; use Linux"
    with tempfile.TemporaryFile() as file:
        lock(file.fileno(), wait=False)
    return Status.OK, "two programs can share a ledger"


def _temporary() -> tuple[Status, str]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "private"
        path.write_bytes(b"")
        path.chmod(0o600)
        if path.stat().st_mode & 0o077:
            return Status.BROKEN, f"files in {_line(Path(name).parent)} cannot be kept private"
        return Status.OK, f"files in {_line(Path(name).parent)} can be kept private"


def _terminal() -> tuple[Status, str]:
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    if encoding.lower().replace("-", "").replace("_", "") != "utf8":
        return Status.MISSING, f"{encoding} shows ε as \\u03b5; set PYTHONUTF8=1"
    return Status.OK, "UTF-8"


def _browser() -> tuple[Status, str]:
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return Status.MISSING, "--open prints the path instead; set BROWSER to its command"
    name = getattr(browser, "name", "") or type(browser).__name__
    if isinstance(browser, webbrowser.GenericBrowser) and shutil.which(name) is None:
        return Status.MISSING, f"BROWSER is set to {_line(name)}, which is not installed"
    return Status.OK, f"--open uses {_line(os.path.basename(name))}"
