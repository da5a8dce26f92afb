"""The whole program on odd files: done, or one sentence and nothing left that is not whole."""

import contextlib
import io
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

from expost.cli.main import main
from expost.errors import ExpostError
from expost.files.directory import RUN
from expost.jobs.output import MANIFEST
from expost.ledger import Ledger
from expost.release import Release
from expost.report import parse_json
from program import people, text

from . import tables
from .damage import altered, damaged, spelled
from .harness import Fault, Target
from .parsers import GIVEN, bases, content, signed

# What may be there after a failure, by the words of `expost profile --help`: the model that was
# drawn, and the ledger that lists it.
_DRAWN = {"model.json", "ledger.CURATOR-ONLY.json"}
_PERSON = ["--set", "age=39", "--set", "city=Oslo", "--set", "smoker=true", "--set", "hours=40"]


class Refused(ExpostError):
    """Exit code 2."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is typed, and the folder that results go to."""

    arguments: list[str]
    out: Path
    secret: bool = True


def run(command: Command) -> None:
    """Run it in this process, and look at what it leaves."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["expost", *command.arguments]
    code: Any = None
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            code = left.code
    printed = err.getvalue()
    assert "Traceback" not in printed
    if command.secret and tables.SECRET in printed:
        raise Fault(f"a message shows a cell: {printed}")
    if code == 0:
        check_whole(command.out)
        return
    assert code == 2, (code, printed)
    assert printed.startswith("expost: "), printed
    assert printed.count("\n") == 1
    check_nothing_partial(command.out)
    raise Refused(printed)


def check_nothing_partial(out: Path) -> None:
    """After a failure there is nothing, or a release that is whole and listed."""
    files = {path.name for path in out.iterdir()} if out.exists() else set()
    if "model.json" in files:
        # To be resumed.
        files -= {MANIFEST, RUN}
    if not files <= _DRAWN:
        raise Fault(f"a failure left {sorted(files - _DRAWN)}")
    if "model.json" in files:
        Release.load(out / "model.json")
    if files:
        Ledger.load(out / "ledger.CURATOR-ONLY.json")


def check_whole(out: Path) -> None:
    """Every file of a finished run can be read again, and none is a leftover."""
    for path in out.iterdir() if out.exists() else ():
        if path.name.startswith(".") and path.name != MANIFEST:
            raise Fault(f"a finished run left {path.name}")
        data = path.read_bytes()
        assert data
        if path.name.startswith("summary."):
            parse_json(data)
        elif path.suffix == ".json":
            json.loads(data)
        elif path.suffix == ".parquet":
            assert pq.read_metadata(io.BytesIO(data)).num_rows > 0
        elif path.suffix == ".html":
            assert data.rstrip().endswith(b"</html>")


def _table(rng: random.Random, folder: Path) -> tuple[str, bool]:
    """A table of any format; and whether messages must not show the cells' mark."""
    kind = rng.choice(["csv", "csv", "parquet", "arrow"])
    write = {"csv": tables.csv_bytes, "parquet": tables.parquet_bytes, "arrow": tables.arrow_bytes}
    whole = rng.random() < 0.8
    data = write[kind](rng, tables.odd_table(rng) if whole else tables.base())
    path = folder / f"t.{kind}"
    path.write_bytes(data if whole else damaged(rng, data, data))
    return str(path), whole or kind != "csv"


def make_on_table(rng: random.Random, folder: Path) -> Command:
    """``profile`` and ``epsilon`` of an odd table."""
    path, secret = _table(rng, folder)
    out = folder / "out"
    arguments = [path, "--target", "income", "--out", str(out)]
    arguments += rng.choice([["--id", "number"], ["--id", "number"], ["--drop", "number"], ["--person", "city"]])  # fmt: skip
    if "--person" not in arguments and rng.random() < 0.2:
        arguments = ["epsilon", *arguments, "--folds", "0", "--epsilons", "1,10"]
    else:
        arguments = ["profile", *arguments, *rng.choice([[], ["--epsilon", "0.1"], ["--json"], ["--noise", "gaussian", "--delta", "1e-5"]])]  # fmt: skip
    return Command(arguments=arguments, out=out, secret=secret)


def make_on_file(rng: random.Random, folder: Path) -> Command:
    """Commands that read a file of expost's own, odd here, beside a table that is not."""
    out, table = folder / "out", folder / "people.csv"
    table.write_text(text(people(40)))
    path = folder / "file.json"
    on_table = [str(table), "--target", "income", "--out", str(out)]
    match rng.randrange(8):
        case 0:
            path.write_bytes(spelled(rng, altered(rng, GIVEN)))
            arguments = ["profile", *on_table, "--encoding", str(path)]
        case 1:
            path.write_bytes(content(rng, "encoding"))
            arguments = ["profile", *on_table, "--encoding", str(path)]
        case 2:
            path.write_bytes(_signed(rng, "model"))
            arguments = ["profile", *on_table, "--model", str(path)]
        case 3:
            path.write_bytes(_signed(rng, "model"))
            arguments = ["publish", "--model", str(path), "--out", str(out)]
        case 4:
            path.write_bytes(_signed(rng, "published"))
            page = rng.choice([[], ["--json"], ["--out", str(out)]])
            arguments = ["lookup", str(path), *_PERSON, *page]
        case 5:
            path.write_bytes(content(rng, "summary"))
            arguments = ["report", str(path), "--out", str(out)]
        case 6:
            path.write_bytes(_signed(rng, "ledger"))
            arguments = ["ledger", str(path), *rng.choice([[], ["--json"], ["--out", str(out)]])]
        case _:
            path.write_bytes(_signed(rng, "model"))
            arguments = ["risk", str(path), *rng.choice([[], ["--json"], ["--out", str(out)]])]
    return Command(arguments=arguments, out=out, secret=False)


def _signed(rng: random.Random, kind: str) -> bytes:
    """A file of its own kind, whole now and then: what follows the reading is judged too."""
    if rng.random() < 0.6:
        return content(rng, kind)
    value = json.loads(json.dumps(rng.choice(bases(kind))))
    if rng.random() < 0.5 and isinstance(value.get("encoding"), dict):
        value["encoding"] = altered(rng, value["encoding"])
    return json.dumps(signed(value)).encode()


COMMANDS = {
    target.name: target
    for target in (
        Target(name="on-table", make=make_on_table, read=run, writes=True),
        Target(name="on-file", make=make_on_file, read=run, writes=True),
    )
}
