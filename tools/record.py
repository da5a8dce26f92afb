"""Record what expost computes, and compare it between two versions of the code.

    python tools/record.py values --out FILE   compute all values with the expost that is importable
    python tools/record.py --against REV       compare this tree with REV, both on this machine
    python tools/record.py check               compare with tests/recorded/core.json
    python tools/record.py store               write tests/recorded/core.json again

``--against`` asks for bit-identity of problems that remove a row of two classes in memory, and for
agreement to 1e-12 everywhere else. ``check`` asks for agreement to 1e-9 with digests of the arrays,
so that another processor passes; error bounds may differ by a factor of 10 there.

A redesign may rename things. Names of the Python interface are listed at the top of
record_problems.py, commands and options at the top of record_commands.py, and keys of JSON
documents in ``KEYS`` below. A number that changes for a reason is listed in ``EXPLAINED``.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "tests" / "recorded" / "core.json"

# The keys of one version, as regular expressions, and what the other version calls them.
KEYS: dict[str, str] = {
    # One profile.json: `rows` is a number, and `table` holds the columns or names their folder.
    r":profile:rows\.": ":profile:table.",
    r":profile:(evidence_in|precision|unproved)$": r":profile:figures.\1",
    r":(profile:(table\.|quantiles\[\]\.|top\[\]\.)|profile-table:)typical(\[\])?$": (
        r":\1expected\3"
    ),
    r":(profile:table\.|profile-table:)belief(\[\])?$": r":\1posterior\2",
    r":(profile:table\.|profile-table:)confidence(\[\])?$": r":\1certainty\2",
    # One epsilon.json and one comparison.json, of the same shape.
    r":epsilon:critical_epsilon": ":epsilon:table.critical_epsilon",
    r":comparison:rows\.": ":comparison:table.",
}
# The words of one version, and what the other version writes in their place.
WORDS: dict[str, str] = {"fail": "curator-only", "review": "needs-review", "pass": "public"}
# Keys, as regular expressions, whose values may differ, and why.
EXPLAINED: dict[str, str] = {
    r":profile:table(\.|$)": "the lines of rows are in the Parquet file alone, which is compared",
    r"\b(encoding:|encoding\.)missing\[\]$": "more tokens mark missing cells by default",
    r":figures\.gaussian_dp(_error)?\.": "new: the Gaussian guarantee, and its error",
    r"\b(shift|members_chosen_by|blind)\b": "new: members and non-members without the model",
    r"\bfit\b": "new: the accuracy of an existing model",
    r":epsilon:(frontier|not_compared)\b": (
        "new: the utility and the posterior over ε, of the mechanism and of others"
    ),
    r"^commands/[a-z]+/profile-[a-z-]+:.*(expected|typical)(\[\])?$": (
        "expected exposures under objective perturbation are means with a control variate"
    ),
    r"^(memory/[a-z-]+/replace/output|neighbours/[a-z-]+/replace)/.*:(error|low|high)$": (
        "a replacement is two changed rows: what a solve leaves is measured, which is mostly less"
    ),
    r"^(memory/logistic/replace/output|neighbours/logistic/replace)/.*:(loss|distance|shift)$": (
        "refined steps to replaced rows stop within their tolerance, elsewhere than before"
    ),
    r"(?<!-blocks):profile:(figures|quantiles|top|measure|quantile_error|rows$)": (
        "one profile.json: rows in memory have figures, quantiles and the most exposed rows too"
    ),
    r":profile:figures\.(count|largest|least|median|past|proved)": "new in profile.json",
    r"persons-objective:stdout:summary\.(beliefs\.worst|profile\.persons\.passed)": (
        "Gaussian noise in the objective has a tighter guarantee for persons"
    ),
    r"objective-blocks:.*(expected|typical)": (
        "expected exposures under objective perturbation are sampled in blocks too"
    ),
    r"persons-objective:stdout:summary\.profile\.precision": (
        "one tangent for rows and persons: half-widths of intervals agree to 1e-7 of themselves"
    ),
    r"-blocks:stdout:summary\.profile\.(explanation|groups)": (
        "exposures by column and the tree are reported in blocks too"
    ),
    r"-blocks:stdout:summary\..*(log_odds|curve\[\]\.typical|exact\.distances\[\])": (
        "the least and the largest value of a histogram are exact; they were rounded up by a bucket"
    ),
    r":(epsilon:utility|stdout:summary\.epsilon\.(utility|table\[\]\.scores))": (
        "the folds of held-out rows are hashed and stratified, in memory and in blocks"
    ),
    r":(epsilon:|stdout:summary\.epsilon\.(table\[\]\.)?)share$": (
        "models that are scored are found to a gradient of 1e-6, by other steps"
    ),
    r":epsilon:(rows$|table\.(row|id|distance))": (
        "one epsilon.json: the number of rows, and every column of rows in memory"
    ),
    r"^memory/[a-z-]+/remove/output/.*/epsilon=inf:(distance|error)$": (
        "without noise the rows with the largest shifts are refined to 1e-6, the others not at all"
    ),
    r"^blocks/.*/300x12/": "the constant feature is one more column of at most seven",
    r":comparison:rows$": "one comparison.json: the number of rows",
    r":(comparison:table\.|comparison-table:|stdout:.*)epsilon_(gradient|hessian)(\[\])?$": (
        "what a report costs a row does not depend on the other rows: at most 3e-5 above its ε"
    ),
}

# These must not change by a single bit.
IDENTICAL = re.compile(r"(memory|neighbours)/(logistic|huber-hinge)/remove/")
# Error bounds: sums of rounding errors, which another processor makes larger or smaller.
ERRORS = re.compile(r"(error|error_bound|precision)(\[\])?$")
# Not stored: a series is cut off where its coefficients drown in rounding errors.
UNSTABLE = re.compile(r"\.coefficients\[\]")
AGAINST = 1e-12
STORED_TOLERANCE = 1e-9
# Of a digest: as many entries of an array, evenly spaced.
ENTRIES = 8
# Differences that are printed, the largest first.
SHOWN = 40

Record = dict[str, list[Any]]


# --- Comparison ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the values of one key compare.

    ``outcome`` is "identical", "within" (the tolerance) or "differing"; ``difference`` the largest
    difference as a share of the scale, infinite where values cannot be subtracted.
    """

    key: str
    outcome: str
    difference: float = 0.0
    reason: str = ""


def is_number(value: Any) -> bool:
    """Whether ``value`` is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal to the last bit; NaN equals NaN, and 0 is not −0."""
    if not (is_number(a) and is_number(b)):
        return type(a) is type(b) and a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1, a) == math.copysign(1, b)


def relative_difference(a: Any, b: Any, scale: float) -> float:
    """Return ∣a − b∣ / max(∣a∣, ∣b∣, scale), infinite where they cannot be subtracted."""
    if same(a, b):
        return 0.0
    if not (is_number(a) and is_number(b) and math.isfinite(a) and math.isfinite(b)):
        return math.inf
    # Only 0 and −0 have no magnitude and are not the same.
    magnitude = max(abs(a), abs(b), scale)
    return abs(a - b) / magnitude if magnitude else 0.0


def within_factor(a: Any, b: Any, factor: float) -> bool:
    """Whether two error bounds have the same order of magnitude; counts must be equal."""
    if same(a, b) or (isinstance(a, int) and isinstance(b, int)):
        return same(a, b)
    if not (is_number(a) and is_number(b) and math.isfinite(a) and math.isfinite(b)):
        return False
    small, large = sorted((abs(a), abs(b)))
    return large < 1e-300 or large <= factor * small


def compare_values(
    key: str, old: list[Any], new: list[Any], *, tolerance: float, identical: bool = False
) -> Verdict:
    """Compare the values of one key.

    The scale of a difference is the largest magnitude in either list: a loss near 0 is the
    difference of large terms.
    """
    if len(old) != len(new):
        reason = f"{len(old)} values became {len(new)}"
        return Verdict(key=key, outcome="differing", difference=math.inf, reason=reason)
    if all(same(a, b) for a, b in zip(old, new, strict=True)):
        return Verdict(key=key, outcome="identical")
    finite = [abs(value) for value in (*old, *new) if is_number(value) and math.isfinite(value)]
    scale = float(max(finite, default=0.0))
    differences = [relative_difference(a, b, scale) for a, b in zip(old, new, strict=True)]
    largest = max(differences)
    if largest <= tolerance and not identical:
        return Verdict(key=key, outcome="within", difference=largest)
    index = differences.index(largest)
    if identical and largest <= tolerance:
        index = next(i for i, pair in enumerate(zip(old, new, strict=True)) if not same(*pair))
    reason = f"entry {index}: {old[index]!r} became {new[index]!r}"
    return Verdict(key=key, outcome="differing", difference=largest, reason=reason)


def compare_digests(key: str, old: list[Any], new: list[Any]) -> Verdict:
    """Compare two digests, of which those of error bounds need only have the same magnitude."""
    if ERRORS.search(key) and len(old) == len(new):
        pairs = list(zip(old, new, strict=True))
        if all(same(a, b) for a, b in pairs):
            return Verdict(key=key, outcome="identical")
        if all(within_factor(a, b, 10.0) for a, b in pairs):
            return Verdict(key=key, outcome="within")
        a, b = next(pair for pair in pairs if not within_factor(*pair, 10.0))
        reason = f"an error bound of {a!r} became {b!r}"
        return Verdict(key=key, outcome="differing", difference=math.inf, reason=reason)
    return compare_values(key, old, new, tolerance=STORED_TOLERANCE)


def compare_records(
    old: Record, new: Record, compare: Callable[[str, list[Any], list[Any]], Verdict]
) -> list[Verdict]:
    """Compare every key of two records; a key that one of them lacks is a difference."""
    verdicts = []
    for key in sorted({*old, *new}):
        if key in old and key in new:
            verdicts.append(compare(key, old[key], new[key]))
        else:
            reason = "is missing now" if key in old else "is new"
            verdicts.append(
                Verdict(key=key, outcome="differing", difference=math.inf, reason=reason)
            )
    return verdicts


def compare_exactly(key: str, old: list[Any], new: list[Any]) -> Verdict:
    """Compare the values of two versions of the code on one machine."""
    identical = IDENTICAL.match(key) is not None
    return compare_values(key, old, new, tolerance=AGAINST, identical=identical)


def rename(record: Record) -> Record:
    """Return an older record under the keys and words of today."""
    renamed: Record = {}
    for key, values in record.items():
        for pattern, replacement in KEYS.items():
            key = re.sub(pattern, replacement, key)
        renamed[key] = [
            WORDS.get(value, value) if isinstance(value, str) else value for value in values
        ]
    return renamed


def explanation(key: str) -> str | None:
    """Return the sentence that explains why a key differs, if there is one."""
    return next((why for pattern, why in EXPLAINED.items() if re.search(pattern, key)), None)


def report(verdicts: list[Verdict], tolerance: float) -> int:
    """Print a table of verdicts and what differs; return the exit code."""
    parts = sorted({verdict.key.split("/")[0] for verdict in verdicts})
    print(f"{'part':12} {'identical':>10} {f'to {tolerance:g}':>10} {'explained':>10} differing")
    failed = 0
    for part in parts:
        own = [verdict for verdict in verdicts if verdict.key.split("/")[0] == part]
        differing = [verdict for verdict in own if verdict.outcome == "differing"]
        unexplained = [verdict for verdict in differing if explanation(verdict.key) is None]
        identical = sum(verdict.outcome == "identical" for verdict in own)
        within = sum(verdict.outcome == "within" for verdict in own)
        explained = len(differing) - len(unexplained)
        print(f"{part:12} {identical:10} {within:10} {explained:10} {len(unexplained)}")
        failed += len(unexplained)
    differing = [verdict for verdict in verdicts if verdict.outcome == "differing"]
    # What has no explanation comes first.
    order = sorted(differing, key=lambda v: (explanation(v.key) is not None, -v.difference))
    for verdict in order[:SHOWN]:
        why = explanation(verdict.key)
        mark = "differs" if why is None else f"explained ({why})"
        print(f"{mark}: {verdict.key}: {verdict.reason} (relative {verdict.difference:.2g})")
    if len(differing) > SHOWN:
        print(f"and {len(differing) - SHOWN} more")
    largest = max(
        (verdict for verdict in verdicts if verdict.outcome == "within"),
        key=lambda verdict: verdict.difference,
        default=None,
    )
    if largest is not None:
        print(f"largest difference within the tolerance: {largest.difference:.2g}, {largest.key}")
    print(f"{failed} keys differ without an explanation." if failed else "The values agree.")
    return int(failed > 0)


# --- Records ------------------------------------------------------------------------------------


def compute(verbose: bool = True) -> Record:
    """Return all values of the expost that is importable, by "part/problem:field"."""
    import record_commands
    import record_problems

    parts: dict[str, Callable[[], dict[str, dict[str, list[Any]]]]] = {
        "problems in memory": record_problems.problem_values,
        "neighbours": record_problems.neighbour_values,
        "problems in blocks": lambda: record_problems.block_values(record_commands.run),
        "commands": record_commands.command_values,
    }
    record: Record = {}
    for name, values in parts.items():
        started = time.perf_counter()
        problems = values()
        for problem, fields in problems.items():
            record |= {f"{problem}:{field}": entries for field, entries in fields.items()}
        if verbose:
            seconds = time.perf_counter() - started
            print(f"{len(problems)} {name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    return record


def digest(values: list[Any]) -> list[Any]:
    """Return what is stored of a list: all of it if short, else statistics and a few entries.

    The order statistics and the sum cover every entry; entries at fixed places notice a
    permutation.
    """
    if len(values) <= ENTRIES + 1:
        return values
    picked = [values[round(i * (len(values) - 1) / (ENTRIES - 1))] for i in range(ENTRIES)]
    if not all(is_number(value) for value in values):
        kinds = sorted({repr(value) for value in values if not is_number(value)})
        return [len(values), len(kinds), *picked]
    finite = sorted(value for value in values if math.isfinite(value))
    statistics: list[Any] = [len(values), len(finite)]
    if finite:
        statistics += [finite[0], finite[len(finite) // 2], finite[-1]]
        statistics.append(math.fsum(abs(value) for value in finite))
    return statistics + picked


def digests(record: Record) -> Record:
    """Return a record of digests, which is small enough to be stored."""
    return {key: digest(values) for key, values in record.items() if not UNSTABLE.search(key)}


def compute_from(source: Path, out: Path) -> Record:
    """Return the values that the expost in the folder ``source`` computes."""
    environment = {**os.environ, "PYTHONPATH": str(source), **SINGLE_THREAD}
    command = [sys.executable, str(Path(__file__).resolve()), "values"]
    command += ["--out", str(out), "--source", str(source)]
    subprocess.run(command, env=environment, check=True)
    return read(out)


def check_source(source: Path | None) -> None:
    """Raise if expost is imported from elsewhere: the comparison would be of equal code."""
    import expost

    origin = Path(str(expost.__file__)).resolve()
    if source is not None and not origin.is_relative_to(source.resolve()):
        raise RuntimeError(f"expost is imported from {origin.parent}, not from {source}.")


def read(path: Path) -> Record:
    """Return the record in a file."""
    record: Record = json.loads(path.read_text())
    return record


def write(path: Path, record: Record) -> None:
    """Write a record, one key a line; Python's JSON keeps every bit of a float."""
    lines = (f"{json.dumps(key)}: {json.dumps(values)}" for key, values in sorted(record.items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# --- Commands -----------------------------------------------------------------------------------

# The order of a sum, and so its last bit, depends on the number of threads.
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def against(revision: str) -> int:
    """Compare this tree with a revision of it, both computed on this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with worktree(revision, folder / "tree") as tree:
            print(f"values of {revision}", file=sys.stderr)
            old = compute_from(tree / "src", folder / "old.json")
        print("values of this tree", file=sys.stderr)
        new = compute_from(ROOT / "src", folder / "new.json")
    return report(compare_records(rename(old), new, compare_exactly), AGAINST)


@contextmanager
def worktree(revision: str, folder: Path) -> Iterator[Path]:
    """Check a revision out into ``folder`` for as long as the context lasts."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def check() -> int:
    """Compare this tree with the stored values."""
    with tempfile.TemporaryDirectory() as name:
        new = digests(compute_from(ROOT / "src", Path(name) / "new.json"))
    verdicts = compare_records(rename(read(STORED)), new, compare_digests)
    return report(verdicts, STORED_TOLERANCE)


def store() -> int:
    """Write the stored values again."""
    with tempfile.TemporaryDirectory() as name:
        write(STORED, digests(compute_from(ROOT / "src", Path(name) / "new.json")))
    print(f"{STORED.relative_to(ROOT)}: {STORED.stat().st_size / 1e6:.2f} MB")
    return 0


def main() -> int:
    """Run the command that was given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", nargs="?", choices=("values", "check", "store"))
    parser.add_argument("--out", type=Path, help="where to write the values")
    parser.add_argument("--source", type=Path, help="the folder that expost must come from")
    parser.add_argument("--against", metavar="REV", help="a revision to compare this tree with")
    options = parser.parse_args()
    if options.against is not None and options.command is None:
        return against(options.against)
    if options.command == "values" and options.out is not None:
        check_source(options.source)
        write(options.out, compute())
        return 0
    if options.command == "check":
        return check()
    if options.command == "store":
        return store()
    print("record: give values --out FILE, check, store, or --against REV.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
