"""``expost encoding``: a file of public constants to fill in, and what is still missing in it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expost.data import Encoding, Table, encoding_template, given_encoding, missing_constants
from expost.data.sources import open_table
from expost.errors import InvalidInput
from expost.files.atomic import write_bytes
from expost.jobs.requests import EncodingRequest
from expost.types import Audience

__all__ = ["Outcome", "run"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it.

    Parameters
    ----------
    path : Path
        The file that was written or checked.
    written : bool
        Whether it was written.
    missing : dict[str, str]
        What each column still lacks, by its name.
    """

    path: Path
    written: bool
    missing: dict[str, str]

    def lines(self) -> list[str]:
        """Return what is printed."""
        lines = [f"Wrote {self.path}."] if self.written else []
        if not self.missing:
            lines.append(
                "Nothing is missing: a model made with this encoding reads nothing from the data"
                " but the number of rows."
            )
            return lines
        lines += ["Still missing, from a code book or a form and not from these rows:"]
        width = max(map(len, self.missing))
        lines += [f"  {name:<{width}}  {lack}" for name, lack in self.missing.items()]
        if self.written:
            lines.append("Kinds were read from the cells: compare them with the schema.")
        lines += [
            "",
            "Next",
            "  expost profile … --encoding FILE                     # all of it filled in: public",
            "  expost profile … --encoding FILE --private-encoding  # ranges alone: ε pays for the"
            " rest",
        ]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the same for a program."""
        return {"file": str(self.path), "written": self.written, "missing": self.missing}


def run(job: EncodingRequest) -> Outcome:
    """Write a template, or check an encoding."""
    if job.template == (job.encoding is not None):
        raise InvalidInput(
            "--template: writes a file to fill in, and --encoding FILE reports what is missing in"
            " one; give one of the two."
        )
    table = open_table(job.source, columns=None, missing=job.missing, id_column=job.id_column)
    if job.target is not None:
        table.require([job.target])
    if job.encoding is not None:
        return Outcome(path=job.encoding, written=False, missing=_missing(job, table))
    value = encoding_template(table, target=job.target, drop=job.drop)
    path = job.file or Path(f"{Path(job.title).stem}.encoding.json")
    if path.exists() and not job.force:
        raise InvalidInput(f"{path}: exists; pass --force to write over it, or --out FILE.")
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    # Names of columns, which the table's schema has: nothing of its rows.
    try:
        write_bytes(path, Audience.PUBLIC, text.encode())
    except OSError as error:
        raise InvalidInput(
            f"out={str(path)!r}: cannot be written to ({error.strerror or error}); name another"
            " file."
        ) from None
    return Outcome(
        path=path, written=True, missing=missing_constants(value, table, target=job.target)
    )


def _missing(job: EncodingRequest, table: Table) -> dict[str, str]:
    """Return what an encoding lacks."""
    given = given_encoding(job.encoding)
    if isinstance(given, Encoding):
        return {
            f"({number})": f"{what} was read from the data"
            for number, what in enumerate(given.read_from_data, 1)
        }
    return missing_constants(given, table, target=job.target)
