"""What every reproduction shares: the paper, the claims and figures of a run, and their files.

Everything is computed before anything is written; index.html comes last, so that a folder that
holds one holds the rest. Only public data is reproduced from, so the files may be shown to anyone.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from expost import _checks
from expost.files.atomic import write_bytes
from expost.jobs.output import check_folder, writing
from expost.jobs.workspace import held
from expost.types import Audience
from papers.common.claims import Claim
from papers.common.exhibits import Exhibit
from papers.common.figures import png
from papers.common.page import Paper, render_page

__all__ = ["Paper", "Reproduction", "reproduce_into", "write"]

# Public data: what is drawn from it says nothing that is not known.
_AUDIENCE = Audience.PUBLIC
_PAGE, _CLAIMS = "index.html", "claims.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduction:
    """What came out: the claims with their verdicts, the figures, and the files that hold them.

    ``source`` says where the data came from, ``made`` how the figures were made.
    """

    paper: Paper
    claims: tuple[Claim, ...]
    exhibits: tuple[Exhibit, ...]
    source: str
    seed: int
    made: str
    files: tuple[Path, ...] = ()

    def lines(self) -> list[str]:
        """Return the verdicts for a terminal, and the path of the page."""
        width = max(len(claim.verdict.value) for claim in self.claims)
        lines = [f"{self.paper.name}, on {self.paper.data}", ""]
        lines += [
            f"  ({claim.key}) {claim.verdict.value:<{width}}  {claim.says}" for claim in self.claims
        ]
        if self.files:
            pictures = sum(path.suffix == ".png" for path in self.files)
            tables = sum(path.suffix == ".csv" for path in self.files)
            lines += [
                "",
                f"Files: {pictures} figures, {tables} tables, {_CLAIMS}",
                f"Page: {self.files[-1].resolve()}",
            ]
        return lines

    def to_json(self) -> str:
        """claims.json."""
        value = {
            "format": "expost-claims/1",
            "paper": self.paper.name,
            "data": self.source,
            "seed": self.seed,
            "claims": [claim.to_json() for claim in self.claims],
        }
        return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def reproduce_into(
    out: Path,
    compute: Callable[[int], Reproduction],
    *,
    seed: int,
    phase: Callable[[str], None],
    force: bool,
) -> Reproduction:
    """Check the seed and the folder before any work, compute from the seed, and write every file.

    ``phase``  receives the name of the last phase; ``compute`` reports its own.
    ``force``  write into a folder that is not empty, over an earlier run.
    """
    out = Path(out)
    seed = _checks.integer("seed", seed, least=0)
    check_folder(out, force=force)
    reproduction = compute(seed)
    phase("drawing and writing")
    return write(reproduction, out)


def write(reproduction: Reproduction, out: Path) -> Reproduction:
    """Draw the exhibits and write every file, the page last."""
    pictures = {exhibit.name: png(exhibit.draw()) for exhibit in reproduction.exhibits}
    contents = {f"{name}.png": picture for name, picture in pictures.items()}
    for exhibit in reproduction.exhibits:
        contents |= {f"{stem}.csv": table.csv() for stem, table in exhibit.tables.items()}
    contents[_CLAIMS] = reproduction.to_json().encode()
    contents[_PAGE] = render_page(
        reproduction.paper,
        claims=reproduction.claims,
        exhibits=reproduction.exhibits,
        pictures=pictures,
        source=reproduction.source,
        seed=reproduction.seed,
        made=reproduction.made,
    ).encode()
    # Checked before the work: what is there is an earlier run.
    with held(out, force=True), writing(out, "free some space, or name another folder"):
        # A page of an earlier run must not stand beside tables of this one.
        (out / _PAGE).unlink(missing_ok=True)
        files = tuple(
            write_bytes(out / name, _AUDIENCE, content) for name, content in contents.items()
        )
    return replace(reproduction, files=files)
