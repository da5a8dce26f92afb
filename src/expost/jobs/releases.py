"""``expost ledger``: every release of a data set, and their composition."""

from collections.abc import Sequence
from pathlib import Path

from expost.errors import InvalidInput
from expost.files.atomic import read_json
from expost.jobs.ledger import ledger_in
from expost.jobs.output import RELEASES, made_now
from expost.jobs.pages import check_answer, store_answer, store_page
from expost.jobs.requests import LedgerRequest
from expost.jobs.workspace import Workspace
from expost.ledger import Entry, Ledger, Listing, append, entries_of, ledger_path
from expost.report import Context, page_of

__all__ = ["add", "listing", "run"]

_ANY_LEDGER = Ledger.FORMAT.partition("/")[0] + "/"


def run(request: LedgerRequest) -> tuple[Listing, dict[str, Path]]:
    """Record releases, list them all, and return the list and the files of its page."""
    check_answer(request)
    paths = request.paths
    if request.add:
        if len(paths) != 1:
            raise InvalidInput("PATH: name one ledger to record releases in (--add).")
        paths = (add(paths[0], request.add),)
    releases = listing(paths, request.delta)

    def store(workspace: Workspace) -> dict[str, Path]:
        source = ", ".join(path.name for path in paths)
        context = Context(source=source, made=made_now())
        return store_page(workspace, page_of(releases, context=context))

    return releases, store_answer(request, paths, store)


def add(path: Path, files: Sequence[Path]) -> Path:
    """List these model.json and report.json files in a ledger, which is created if necessary.

    The ledger of a folder is the one that lists its model: a second one would hide it.
    """
    known = ledger_in(path) if path.is_dir() else None
    ledger = known or ledger_path(path)
    if not ledger.parent.is_dir():
        raise InvalidInput(f"ledger={str(ledger)!r}: its folder does not exist; create it.")
    # Read before the ledger is touched: either all are listed or none.
    entries = [entry for file in files for entry in entries_of(file)]
    try:
        append(ledger, lambda _: entries)
    except OSError as error:
        raise InvalidInput(
            f"ledger={str(ledger)!r}: cannot be written to ({error.strerror or error})."
        ) from None
    return ledger


def listing(paths: Sequence[Path], delta: float | None = None) -> Listing:
    """Return the releases of these ledgers, folders, models and reports, each once."""
    releases: dict[str, tuple[Entry, Path | None]] = {}
    for path in paths:
        for entry, ledger in _entries(path):
            known = releases.get(entry.release)
            if known is None or (known[1] is None and ledger is not None):
                releases[entry.release] = (entry, ledger)
    if not releases:
        raise InvalidInput(f"{paths[0]}: lists no release yet.")
    return Listing.of(releases.values(), delta)


def _entries(path: Path) -> list[tuple[Entry, Path | None]]:
    """Return the releases at one path, with the ledger that lists each."""
    if not path.is_dir():
        value = read_json(path)
        # Also one of a newer expost, which is refused with its own error.
        if isinstance(value, dict) and str(value.get("format")).startswith(_ANY_LEDGER):
            return [(entry, path) for entry in Ledger.load(path).entries]
        return _marked(entries_of(path), ledger_in(path.parent))
    ledger = ledger_in(path)
    listed = [] if ledger is None else [(entry, ledger) for entry in Ledger.load(ledger).entries]
    files = [path / name for name in RELEASES if (path / name).exists()]
    if ledger is None and not files:
        raise InvalidInput(
            f"{path}: holds neither a ledger nor a model.json or report.json; name the folder of a"
            " release."
        )
    return [*listed, *(entry for file in files for entry in _marked(entries_of(file), ledger))]


def _marked(entries: Sequence[Entry], ledger: Path | None) -> list[tuple[Entry, Path | None]]:
    """Return each entry as its ledger lists it, if it does."""
    held = {} if ledger is None else {e.release: e for e in Ledger.load(ledger).entries}
    return [
        (held.get(entry.release, entry), ledger if entry.release in held else None)
        for entry in entries
    ]
