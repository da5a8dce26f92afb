"""``profile_stream``, the verb: a profile of a table of any length, which is never held."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from expost.data import Encoding, Mark, Table
from expost.data.dask_rows import array_encoding, array_table
from expost.engine.progress import SILENT
from expost.errors import InvalidInput
from expost.jobs.output import check_place
from expost.jobs.profile import run_opened
from expost.jobs.profile_asked import ProfileJob, opened_for
from expost.jobs.streaming import Streaming
from expost.jobs.table import noted
from expost.profiles.profile import Profile
from expost.release import Release

__all__ = ["profile_stream"]


def profile_stream(
    model: Any,
    source: Any,
    *,
    out: str | Path,
    id_column: str | None = None,
    engine: Any = "local",
    resume: bool = False,
    force: bool = False,
) -> Profile:
    """How much ``model`` gives each row of a table away that need not fit into memory.

    ``model``      a released model that was made from a table (``expost profile``), or the path of
                   its model.json: it says how cells become numbers. Of a pair of arrays any model
                   of two classes or of a number, also a fitted estimator.
    ``source``     its training rows, in their order: whatever ``expost.data.open_table`` reads
                   (also a Dask dataframe), or a pair (X, y) of Dask arrays.
    ``out``        a folder for the results, the same files as ``expost profile`` writes; the table
                   with a line for each row is the folder ``profile.CURATOR-ONLY.parquet`` in it.
    ``id_column``  keys of the rows for the result.
    ``engine``     where blocks of rows are worked on: "local", "local:4" (threads), "dask",
                   "dask:4", "dask://host:port", or a Dask client. Results do not depend on it.
    ``resume``     go on with a run that was begun in ``out`` and not finished.
    ``force``      write over what is there.

    Curator-only: the losses are a function of the data (Redberg & Wang, Example 4).
    """
    path = Path(model) if isinstance(model, str | Path) else None
    release = getattr(model, "release_", model) if path is None else Release.load(path)
    arrays = isinstance(source, tuple)
    if not isinstance(release, Release) or (release.encoding is None and not arrays):
        raise InvalidInput(
            "model: must be a released model with the encoding of its table, or the path of its"
            " model.json; profile rows in memory with expost.profile."
        )
    given = _arrays(source, release) if arrays else None
    encoding = release.encoding if given is None else given[1].to_json()
    assert encoding is not None
    job = ProfileJob(
        source=source,
        target=encoding["target"]["column"],
        out=Path(out),
        name=_named(source),
        id_column=id_column,
        model=path,
        force=force,
        streaming=Streaming(engine=engine, resume=resume),
    )
    with noted() as notes:
        check_place(job.out, resume=resume, force=force, lost=job.lost)
        opened = opened_for(job, release) if given is None else given
        return run_opened(job, release, opened, notes, SILENT).profile


def _arrays(source: tuple[Any, ...], release: Release) -> tuple[Table, Encoding]:
    """A pair of Dask arrays as the table that the model was made from."""
    if release.encoding is not None:
        raise InvalidInput(
            "source: the model was made from a table; name that, or a Dask dataframe of it."
        )
    if len(source) != 2 or not all(hasattr(array, "__dask_graph__") for array in source):
        raise InvalidInput("source: must be a pair (X, y) of Dask arrays, or a table.")
    if release.classes is not None and len(release.classes) > 2:
        raise InvalidInput(
            "model: has more than two classes, and is not worked on in blocks; profile it with"
            " expost.profile."
        )
    X, y = source
    table = array_table(X, y, text=release.classes is not None)
    classes = None if release.classes is None else release.classes.tolist()
    encoding = array_encoding(X.shape[1], release.ball, classes)
    if X.shape[1] + release.ball.fit_intercept != release.mechanism.dimension:
        raise InvalidInput(
            f"source: X has {X.shape[1]} columns, and the model"
            f" {release.mechanism.dimension - release.ball.fit_intercept}; pass its training rows."
        )
    if any(entry.startswith("data_norm") for entry in release.read_from_data):
        encoding = replace(encoding, data_norm_mark=Mark.READ)
    return table, encoding


def _named(source: Any) -> str:
    """What the page calls the table."""
    return Path(source).name if isinstance(source, str | Path) else "a table"
