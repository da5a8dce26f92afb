"""``profile_stream``, the verb: a profile of a table of any length, which is never held."""

from pathlib import Path
from typing import Any

from expost._jobs import stream_profile
from expost._jobs.profile_asked import ProfileJob, opened_for
from expost._jobs.streaming import Streaming, check_place
from expost._jobs.table import noted
from expost._progress import SILENT
from expost._streamed_result import StreamedProfile
from expost.errors import InvalidInput
from expost.mechanisms import Release

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
) -> StreamedProfile:
    """How much ``model`` gives each row of a table away that need not fit into memory.

    ``model``      a released model that was made from a table (``expost profile``), or the path of
                   its model.json: it says how cells become numbers.
    ``source``     its training rows, in their order: whatever ``expost.data.open_table`` reads.
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
    if not isinstance(release, Release) or release.encoding is None:
        raise InvalidInput(
            "model: must be a released model with the encoding of its table, or the path of its"
            " model.json; profile rows in memory with expost.profile."
        )
    job = ProfileJob(
        source=source,
        target=release.encoding["target"]["column"],
        out=Path(out),
        name=_named(source),
        id_column=id_column,
        model=path,
        force=force,
        streaming=Streaming(engine=engine, resume=resume),
    )
    with noted() as notes:
        check_place(job.out, job.streaming, force=force, lost=job.lost)
        opened = opened_for(job, release)
        outcome = stream_profile.run(job, release, opened, notes, SILENT)
    assert isinstance(outcome.profile, StreamedProfile)
    return outcome.profile


def _named(source: Any) -> str:
    """What the page calls the table."""
    return Path(source).name if isinstance(source, str | Path) else "a table"
