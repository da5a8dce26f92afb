"""``expost doctor``: what is installed, what is missing and prevents what, what the machine can do.

Packages are imported in a process of their own, for one that is broken may take its process down
with it. Nothing but the standard library is imported here, since anything else may be what is
broken. The bounds of versions stand in pyproject.toml alone; here they are read from the installed
metadata. Of markers only ``extra == '…'`` is understood, which is all that our metadata has (a test
sees to that).
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

# What cannot be done without a package of an extra. The extras of developers are not told.
PREVENTS = {
    "pandas": "to_frame() of results, fetching data sets from OpenML",
    "polars": "to_frame('polars') of results",
    "adbc-driver-postgresql": "tables from PostgreSQL",
    "dask": "--engine dask, Dask dataframes and arrays",
    "distributed": "--engine dask (a cluster of workers)",
    "cryptography": "--engine dask (workers that others of this machine cannot reach)",
    "torch": "expost.torch (DP-SGD)",
    "opacus": "expost.torch.track (follow an Opacus training)",
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

# Says for each module that it is being tried, then what came of it, on a stream that no module can
# write to.
_TRY = """
import importlib, json, os, sys
told = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.path[:] = json.loads(sys.argv[1])
for name in sys.argv[2:]:
    print(json.dumps([name, "did not live through its import"]), file=told, flush=True)
    try:
        importlib.import_module(name)
        fault = None
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"
    print(json.dumps([name, fault]), file=told, flush=True)
"""


class Status(Enum):
    """What came of a check."""

    OK = "ok"
    MISSING = "missing"
    TOO_OLD = "too old"
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    ``needed``  whether expost does not keep its promises without it.
    ``asked``   the versions that will do.
    ``detail``  what is wrong and what mends it, or what to know.
    """

    group: str
    name: str
    status: Status
    needed: bool
    version: str | None = None
    asked: str = ""
    detail: str = ""

    @property
    def harms(self) -> bool:
        """Whether something that is needed does not work."""
        return self.needed and self.status is not Status.OK

    def to_json(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self) | {"status": self.status.value}


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """All that was looked at."""

    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether all that is needed works."""
        return not any(finding.harms for finding in self.findings)

    @property
    def sentence(self) -> str:
        """What it comes to."""
        harmed = [finding.name for finding in self.findings if finding.harms]
        if harmed:
            return f"Not well: {', '.join(harmed)}; see above."
        less = [one.name for one in self.findings if one.status is not Status.OK]
        return "All is well" + (f"; without {', '.join(less)}." if less else ".")

    def lines(self) -> list[str]:
        """One line a finding, a paragraph a group."""
        shown = [
            (
                finding.group,
                finding.name,
                finding.version or "",
                finding.status.value,
                "; ".join(part for part in (finding.asked, finding.detail) if part),
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
        """The same for a program."""
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
    """A distribution that is asked for; ``bounds`` as ">=2.0", ``extra`` None where always."""

    name: str
    bounds: str
    extra: str | None


def parse_requirement(text: str) -> Requirement | None:
    """One ``Requires-Dist`` of the metadata; None if it is none."""
    shaped = _SHAPE.fullmatch(text)
    if shaped is None:
        return None
    name, bounds, marker = shaped.groups()
    extra = _EXTRA.search(marker or "")
    return Requirement(
        name=name, bounds=bounds.replace(" ", ""), extra=None if extra is None else extra[1]
    )


def satisfies(version: str, bounds: str) -> bool:
    """Whether ``version`` keeps all of ``bounds``; a version that cannot be read keeps none."""
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
    """The numbers of a release, and whether it is one (and not what came before it)."""
    found = _RELEASE.fullmatch(text.strip())
    if found is None:
        return None
    return [int(part) for part in found[1].split(".")], _BEFORE.match(found[2]) is None


def _compared(have: tuple[list[int], bool], want: tuple[list[int], bool]) -> int:
    """−1, 0 or 1; 2.0 and 2.0.0 are the same, and rc1 and rc2 count as the same."""
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
        asked = [parse_requirement(text) for text in metadata.requires("expost") or ()]
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
        version, asked, python = None, [], ""
    else:
        yield Finding(group=_NEEDED, name="expost", status=Status.OK, needed=True, version=version)
    yield _python(python)
    known = [one for one in asked if one is not None]
    wanted = [one for one in known if one.extra is None or one.extra in _told(known)]
    versions = {one.name: _version(one.name) for one in wanted}
    there = list(dict.fromkeys(name for name, found in versions.items() if found is not None))
    faults = _faults([_module(name) for name in there])
    for one in sorted(wanted, key=lambda one: one.extra is not None):
        yield _package(one, versions[one.name], faults.get(_module(one.name)))


def _told(asked: Sequence[Requirement]) -> set[str]:
    return {one.extra for one in asked if one.extra is not None} - set(_OF_DEVELOPERS)


def _python(asked: str) -> Finding:
    version = platform.python_version()
    enough = satisfies(version, asked)
    return Finding(
        group=_NEEDED,
        name="Python",
        status=Status.OK if enough else Status.TOO_OLD,
        needed=True,
        version=version,
        asked=asked,
    )


def _version(name: str) -> str | None:
    try:
        # None where the metadata is there and says nothing.
        found: str | None = metadata.version(name)
    except Exception:  # noqa: BLE001 (absent or damaged, it is not usefully there)
        return None
    return found


def _module(name: str) -> str:
    return _MODULES.get(name, name.replace("-", "_"))


def _package(asked: Requirement, version: str | None, fault: str | None) -> Finding:
    mend = f"pip install 'expost[{asked.extra}]'" if asked.extra else f"pip install {asked.name}"
    status, detail = Status.OK, ""
    if version is None:
        status, detail = Status.MISSING, mend
    elif fault is not None:
        status = Status.BROKEN
        detail = f"{fault}; pip install --force-reinstall {asked.name}"
    elif not satisfies(version, asked.bounds):
        status = Status.TOO_OLD
        detail = f"pip install --upgrade '{asked.name}{asked.bounds}'"
    if asked.extra is not None and status is not Status.OK:
        prevented = PREVENTS.get(asked.name, f"what expost[{asked.extra}] brings")
        detail = f"prevents {prevented}; {detail}"
    return Finding(
        group=_NEEDED if asked.extra is None else _EXTRAS,
        name=asked.name,
        status=status,
        needed=asked.extra is None,
        version=version,
        asked=asked.bounds,
        detail=detail,
    )


def _faults(modules: Sequence[str]) -> dict[str, str | None]:
    """What each of these says when it is imported; None where nothing is wrong."""
    faults: dict[str, str | None] = {}
    left = list(modules)
    while left:
        told = _tried(left)
        faults |= told
        if not told:
            return faults | dict.fromkeys(left, "could not be tried")
        # Where one took the process down, the others are tried in another.
        left = [name for name in left if name not in told]
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
    told: dict[str, str | None] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            name, fault = json.loads(line)
        except ValueError:
            continue
        told[name] = None if fault is None else _line(fault)
    return told


def _line(text: object) -> str:
    """One printable line of it."""
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
        # A machine may fail in more ways than can be listed; each is a finding.
        except Exception as error:  # noqa: BLE001 (see above)
            status, detail = Status.BROKEN, _line(error) or type(error).__name__
        yield Finding(group=_MACHINE, name=name, status=status, needed=needed, detail=detail)


def _randomness() -> tuple[Status, str]:
    if secrets.token_bytes(32) == secrets.token_bytes(32):
        return Status.BROKEN, "the operating system gives the same bytes twice; release nothing"
    return Status.OK, "releases draw from the operating system"


def _locks() -> tuple[Status, str]:
    if not can_replace_locked():
        return Status.MISSING, "the ledger cannot be kept, so that nothing is released; use Linux"
    with tempfile.TemporaryFile() as file:
        lock(file.fileno(), wait=False)
    return Status.OK, "two programs can keep one ledger"


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
        found = webbrowser.get()
    except webbrowser.Error:
        return Status.MISSING, "--open prints the path instead; set BROWSER to its command"
    name = getattr(found, "name", "") or type(found).__name__
    if isinstance(found, webbrowser.GenericBrowser) and shutil.which(name) is None:
        return Status.MISSING, f"BROWSER names {_line(name)}, which is not there"
    return Status.OK, f"--open uses {_line(os.path.basename(name))}"
