"""A stored profile: its rows, and what an attacker learns about each of them.

Results are untrusted input: files are compared with the list of files that the command wrote into
their folder, if it is there.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from expost.errors import InvalidInput
from expost.files.atomic import read_json
from expost.files.parts import MANIFEST as PARTS
from expost.files.parts import PartStore
from expost.files.sealed import number
from expost.mechanisms import RowLosses
from expost.profiles.digest import Terms
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import FORMAT, law_at
from expost.release import Release
from expost.types import Audience, Neighbouring

__all__ = ["PROFILE", "StoredProfile", "check_listed", "finite", "read_rows"]

PROFILE = Audience.CURATOR_ONLY.file_name("profile", "json")
# The list of the files that a command wrote into its folder (expost.jobs.output.MANIFEST).
_LIST = Audience.CURATOR_ONLY.file_name(".expost-manifest", "json")
_LOSSES = ("loss", "loss_low", "loss_high", "distance", "distance_error")
_UNKNOWN = (LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredProfile:
    """A profile that a command stored, with the model that it is of.

    Parameters
    ----------
    path : Path
        Its JSON file.
    content : Mapping[str, Any]
        What the file holds.
    release : Release
        The model.
    """

    path: Path
    content: Mapping[str, Any]
    release: Release

    @classmethod
    def load(cls, path: Path, release: Release | None = None) -> Self:
        """Return the profile in a file; by default its model is model.json in the same folder."""
        check_listed(path)
        content, model = read_json(path), path.parent / "model.json"
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InvalidInput(f"{path}: is not a profile that this expost wrote; make it again.")
        if release is None and not model.exists():
            raise InvalidInput(
                f"{path}: the model.json of this profile is not in its folder; copy it there."
            )
        release = Release.load(model) if release is None else release
        if content.get("identity") != release.identity:
            raise InvalidInput(f"{path}: is a profile of another model; name its own model.json.")
        return cls(path=path, content=content, release=release)

    @property
    def table(self) -> Path | None:
        """The file of its rows, or the list of its parts; None where the profile holds them."""
        name = self.content.get("table")
        path = self.path.parent / name if isinstance(name, str) else None
        return path / PARTS if path is not None and path.is_dir() else path

    @property
    def has_rows(self) -> bool:
        """Whether its table of rows is there."""
        return self.table is None or self.table.exists()

    @property
    def has_law(self) -> bool:
        """Whether the law of each row's loss is known."""
        return law_at(self.release, np.zeros(1)) is not None

    def identifiability(
        self, prior: float = 0.5, *, baseline: float | None = None
    ) -> RowIdentifiability:
        """Return what :meth:`expost.Profile.identifiability` returned for the same profile."""
        content = self.content
        try:
            unit, notices = str(content["unit"]), tuple(map(str, content["notices"]))
            table, rows = content["table"], content["figures"]["count"]
            columns = read_rows(self.path, table, rows, _LOSSES, keys=True)
            relation, worst = Neighbouring(content["relation"]), content["worst_case"]
        except _UNKNOWN as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"{self.path}: a field is missing or has the wrong type ({type(error).__name__});"
                " make it again with expost profile."
            ) from None
        if columns is None:
            raise InvalidInput(f"{self.path}: its table of rows is not there; name its folder.")
        distance, inexact = columns["distance"], columns["distance_error"]
        losses = RowLosses(
            loss=columns["loss"],
            low=columns["loss_low"],
            high=columns["loss_high"],
            distance=distance,
            distance_error=inexact,
            law=law_at(self.release, distance),
            far_law=law_at(self.release, distance + inexact),
            **vars(self._terms(unit, relation, worst)),
        )
        return RowIdentifiability(
            losses=losses,
            prior=prior,
            description=str(content["model"]),
            ids=columns.get("id"),
            notices=notices,
            baseline=baseline,
            unit=unit,
        )

    def _terms(self, unit: str, relation: Neighbouring, worst: Any) -> Terms:
        """Return what is guaranteed about each row or person, and nothing where it is not known."""
        mechanism = self.release.mechanism
        terms = replace(Terms.of_removal(mechanism), relation=relation)
        bounded = isinstance(worst, int | float) and worst < math.inf
        if not bounded or relation is Neighbouring.REPLACE:
            return replace(terms, worst_case=math.inf, worst_case_passed=0.0, guarantee=None)
        if unit == "row" or terms.guarantee is None:
            return terms
        return replace(terms, guarantee=mechanism.guarantee(mechanism.rows_per_person))


def read_rows(
    path: Path, table: Any, count: Any, names: Sequence[str], *, keys: bool = False
) -> dict[str, Any] | None:
    """Return columns of all rows of a stored profile; None if its table is not there.

    Parameters
    ----------
    path : Path
        The JSON file of the profile.
    table : Any
        What it states of its table: the columns, or the name of the file that holds them.
    count : Any
        The number of rows that it states.
    names : Sequence[str]
        The columns.
    keys : bool, default=False
        Whether to read the keys of the rows too, if there are keys.

    Returns
    -------
    dict[str, Any] | None
        The columns as arrays, and the keys as ``id``.
    """
    if isinstance(table, str):
        file = path.parent / table
        if Path(table).name != table or table in ("", ".", ".."):
            raise InvalidInput(f"{path}: its table is in another folder; make it again.")
        if not file.exists():
            return None
        # Of rows in blocks, the list of the parts is listed.
        check_listed(file, file / PARTS if file.is_dir() else file)
        columns = _columns(file, names, keys=keys)
    else:
        columns = {name: np.array([_number(each) for each in table[name]], float) for name in names}
        columns |= {"id": tuple(table["id"])} if keys and "id" in table else {}
    if any(len(values) != count for values in columns.values()):
        raise InvalidInput(
            f"{path}: its table has {len(columns[names[0]]):,} rows, and it states another number;"
            " make both again."
        )
    return columns


def _number(entry: Any) -> float:
    """Return a loss as JSON holds it, null where it is not known."""
    if entry is None:
        return math.nan
    infinite = {"infinity": math.inf, "-infinity": -math.inf}
    return infinite[entry] if isinstance(entry, str) and entry in infinite else finite(entry)


def finite(value: Any) -> float:
    """Return a finite number; the caller names the file of one that is none."""
    try:
        return number(value)
    except InvalidInput:
        raise TypeError from None


def _columns(file: Path, names: Sequence[str], *, keys: bool) -> dict[str, Any]:
    """Return columns of a Parquet file, or of a folder of parts."""
    import pyarrow as pa
    import pyarrow.parquet

    try:
        whole = PartStore(folder=file).tables() if file.is_dir() else [pa.parquet.read_table(file)]
        # A part at a time, of which only these columns are kept.
        tables = [
            table.select([*names, *({"id"} & {*table.schema.names} if keys else ())])
            for table in whole
        ]
        columns: dict[str, Any] = {
            name: np.concatenate([table.column(name).to_numpy() for table in tables])
            for name in names
        }
        if keys and all("id" in table.schema.names for table in tables):
            columns["id"] = tuple(key for each in tables for key in each.column("id").to_pylist())
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InvalidInput(
            f"{file}: is not a table of rows ({type(error).__name__}); make it again."
        ) from None
    return columns


def check_listed(path: Path, content: Path | None = None) -> None:
    """Refuse a file that differs from the one that the command listed in its folder.

    ``content`` is the file whose checksum is listed, if not ``path``.
    """
    listed = path.parent / _LIST
    if not listed.exists():
        return
    files = read_json(listed).get("files", {})
    if path.name not in files:
        raise InvalidInput(
            f"{path}: is not in the list of files that expost wrote there; make it again."
        )
    with (path if content is None else content).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() not in files[path.name]:
            raise InvalidInput(f"{path}: was changed after expost wrote it; make it again.")
