"""Output folders prepared by an attacker, or by a careless user: nothing foreign is ever lost.

The program is run as users run it, in processes of its own. What must survive lies behind links, in
folders of other users, and under the names of results.
"""

import hashlib
import io
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import expost
from evidence import record
from expost.data import Encoding
from expost.files.directory import RUN
from expost.jobs.ledger import ledger_in, table_ledger
from expost.jobs.output import MANIFEST, RELEASES, RESULTS
from expost.ledger import NAME, Ledger
from faults.runs import GIVEN, SPENDS, ForkServer
from settings import OUTPUT_OPTIONS

SEED = 20261117
FEW, MANY = 3, 50
TREE = "sklearn.tree.DecisionTreeClassifier:max_depth=2"
TABLE = "profile.CURATOR-ONLY.parquet"


def state_of(folder: Path) -> dict[str, object]:
    """Everything about a tree that an attack could change: names, kinds, modes, owners, bytes."""
    state = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        name = str(path.relative_to(folder))
        state[name] = (status.st_mode, status.st_uid, status.st_ino, content)
    return state


def is_one_sentence(done) -> bool:
    return done.err.startswith("expost: ") and done.err.count("\n") == 1


@dataclass(frozen=True)
class Case:
    """A table, a model of it, and how each command is asked."""

    server: ForkServer
    rows: Path
    model: Path

    def command(self, name: str, rows: Path | None = None) -> tuple[object, ...]:
        table = (self.rows if rows is None else rows, "--target", "y", "--id", "key")
        sweep = (*OUTPUT_OPTIONS, "--epsilons", "0.5,2", "--folds", 0)
        return {
            "profile": ("profile", *table),
            "profile in blocks": ("profile", *table, "--engine", "local"),
            "profile of a model": ("profile", *table, "--model", self.model),
            "epsilon": ("epsilon", *table, *sweep),
            "epsilon in blocks": ("epsilon", *table, *sweep, "--engine", "local"),
            "publish": ("publish", *table, "--model", self.model),
            "publish in blocks": ("publish", *table, "--model", self.model, "--engine", "local"),
            "audit": ("audit", *table, "--estimator", TREE, "--references", 2),
        }[name]

    @property
    def ledger(self) -> Path:
        """The ledger of the table, in the same folder."""
        return table_ledger(self.rows)

    @property
    def releases(self) -> tuple[str, ...]:
        """What was released of the table."""
        if not self.ledger.exists():
            return ()
        return tuple(entry.release for entry in Ledger.load(self.ledger).entries)

    def run(self, name: str, *options: object, rows: Path | None = None, **settings):
        return self.server.run(*self.command(name, rows), *options, **settings)


COMMANDS = (
    "profile",
    "profile in blocks",
    "profile of a model",
    "epsilon",
    "epsilon in blocks",
    "publish",
    "publish in blocks",
    "audit",
)


@pytest.fixture(scope="module")
def case(server, rows, tmp_path_factory) -> Case:
    folder = tmp_path_factory.mktemp("model")
    small = folder / "rows.parquet"
    pq.write_table(pq.read_table(rows).slice(0, 300), small, row_group_size=100)
    from faults.runs import publishable

    return Case(server=server, rows=small, model=publishable(small))


# -- 1. links --------------------------------------------------------------------------------------


def _link_to_a_folder(*names: str) -> Callable[[Path, Path], None]:
    def plant(out: Path, outside: Path) -> None:
        path = out.joinpath(*names)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.symlink_to(outside)

    return plant


def _link_to_a_file(name: str) -> Callable[[Path, Path], None]:
    def plant(out: Path, outside: Path) -> None:
        (out / name).symlink_to(outside / "thesis.txt")

    return plant


def _folder_of_another_user(out: Path, outside: Path) -> None:
    shutil.copytree(outside, out / RUN)
    for path in (out / RUN, *(out / RUN).rglob("*")):
        os.chown(path, 12_345, 12_345)


def _folder_with_a_thesis(out: Path, outside: Path) -> None:
    shutil.copytree(outside, out / RUN)


def _list_of_another_user(out: Path, outside: Path) -> None:
    """It lists a file of the folder, with its right checksum."""
    thesis = shutil.copy(outside / "thesis.txt", out / "thesis.txt")
    checksum = hashlib.sha256(Path(thesis).read_bytes()).hexdigest()
    files = {"thesis.txt": [checksum]}
    value = {"format": "expost-manifest/1", "audience": "curator-only", "files": files, "run": []}
    (out / MANIFEST).write_text(json.dumps({**value, "task": None}))
    os.chown(out / MANIFEST, 12_345, 12_345)


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "the run's folder is a link": _link_to_a_folder(RUN),
    "drafts are a link": _link_to_a_folder(RUN, "drafts"),
    "a step is a link": _link_to_a_folder(RUN, "losses"),
    "a table is a link": _link_to_a_folder(TABLE),
    "the page is a link": _link_to_a_file("report.CURATOR-ONLY.html"),
    "the lock is a link": _link_to_a_folder(RUN, "lock"),
    "the state is a link": _link_to_a_folder(RUN, "state.json"),
    "the list is a link": _link_to_a_file(MANIFEST),
    "the model is a link": _link_to_a_file("model.json"),
    "the report is a link": _link_to_a_file("report.json"),
    "the run's folder is another user's": _folder_of_another_user,
    "the run's folder is none of a run": _folder_with_a_thesis,
    "the list is another user's": _list_of_another_user,
}


def outside_of(folder: Path) -> Path:
    """What an attack aims at: it bears the names of our own files, too."""
    outside = folder / "outside"
    (outside / "drafts").mkdir(parents=True)
    for name in ("thesis.txt", "state.json", "lock", "model.json", "_manifest.json"):
        (outside / name).write_text("of somebody else")
    part = outside / f"part-000000-{64 * '0'}.parquet"
    part.write_text("of somebody else")
    (outside / "drafts" / ".model.json.0a1b2c3d.part").write_text("of somebody else")
    return outside


def attack_by_link(case: Case, folder: Path, plant: str, command: str, *options: str) -> None:
    """Plant it, run the command, and look for any change outside, and of what was planted."""
    outside, out = outside_of(folder), folder / "o"
    out.mkdir()
    PLANTS[plant](out, outside)
    before, planted, releases = state_of(outside), state_of(out), case.releases
    done = case.run(command, "--out", out, *options)
    what = (plant, command, options, done)
    assert state_of(outside) == before, what
    after = state_of(out)
    assert {name: after.get(name) for name in planted} == planted, what
    if "--force" not in options:
        # A folder that holds a link is not empty.
        assert done.code == 2, what
    if done.code != 0:
        assert done.code == 2, what
        assert is_one_sentence(done), what
        assert after == planted, what
        assert case.releases == releases, what


@pytest.mark.parametrize("plant", PLANTS)
def test_no_link_and_no_foreign_folder_is_touched(case, tmp_path, plant):
    for number, options in enumerate(((), ("--force",), ("--resume",))):
        name = COMMANDS[(3 * number + list(PLANTS).index(plant)) % len(COMMANDS)]
        attack_by_link(case, tmp_path / str(number), plant, name, *options)


def test_the_attack_that_was_found_is_refused_before_anything_is_drawn(case, tmp_path):
    outside, out = outside_of(tmp_path), tmp_path / "o"
    out.mkdir()
    (out / RUN).symlink_to(outside)
    before, releases = state_of(outside), case.releases
    for name in COMMANDS:
        done = case.run(name, "--out", out, "--force")
        assert (done.code, is_one_sentence(done)) == (2, True), done
        assert "is a symbolic link" in done.err
        assert state_of(outside) == before
    assert [path.name for path in out.iterdir()] == [RUN]
    assert case.releases == releases


def test_a_run_folder_is_made_for_its_owner_alone(case, tmp_path, monkeypatch):
    modes = []
    out = tmp_path / "o"

    def record_mode(*arguments, **options):
        modes.extend(path.stat().st_mode & 0o777 for path in (out / RUN, out / RUN / "drafts"))
        raise KeyboardInterrupt

    from expost.jobs import profile
    from expost.jobs.requests import ProfileRequest

    monkeypatch.setattr(profile, "page_of", record_mode)
    old = os.umask(0)
    job = ProfileRequest(source=str(case.rows), target="y", out=out, name="rows")
    try:
        with pytest.raises(KeyboardInterrupt):
            profile.run(job)
    finally:
        os.umask(old)
    assert modes == [0o700, 0o700]


# -- 2. inputs under the names of results ----------------------------------------------------------


def _named(name: str) -> Callable[[Path, Path], Path]:
    """The table itself lies in the folder, under the name of a result."""

    def target(rows: Path, out: Path) -> Path:
        if not name.endswith(".parquet"):
            pyarrow.csv.write_csv(pq.read_table(rows), out / name)
        else:
            shutil.copyfile(rows, out / name)
        return out / name

    return target


def _hard_link(rows: Path, out: Path) -> Path:
    copy = out.parent / "table.parquet"
    shutil.copyfile(rows, copy)
    os.link(copy, out / TABLE)
    return copy


def _linked(rows: Path, out: Path) -> Path:
    """The table is asked for through a link, and lies under the name of a result."""
    shutil.copyfile(rows, out / "audit.parquet")
    (out.parent / "table.parquet").symlink_to(out / "audit.parquet")
    return out.parent / "table.parquet"


def _folder(rows: Path, out: Path) -> Path:
    (out / TABLE).mkdir()
    shutil.copyfile(rows, out / TABLE / "part-0.parquet")
    return out / TABLE


def _glob(rows: Path, out: Path) -> Path:
    shutil.copyfile(rows, out / "comparison.parquet")
    return out / "*.parquet"


SOURCES: dict[str, Callable[[Path, Path], Path]] = {
    **{
        name: _named(name)
        for name in (
            *("profile.parquet", "audit.parquet", "audit.json", "report.html", TABLE),
            *("epsilon.CURATOR-ONLY.json", "summary.json", "encoding.json"),
        )
    },
    "a hard link": _hard_link,
    "through a link": _linked,
    "a folder": _folder,
    "a glob": _glob,
}


def attack_an_input(case: Case, folder: Path, source: str, command: str) -> None:
    """Let the table lie under the name of a result, and write over an earlier run."""
    out = folder / "o"
    out.mkdir(parents=True)
    rows = SOURCES[source](case.rows, out)
    before = state_of(folder)
    done = case.run(command, "--out", out, "--force", rows=rows)
    what = (source, command, done)
    assert (done.code, is_one_sentence(done)) == (2, True), what
    assert "would be lost" in done.err, what
    # Nothing was drawn, nothing is gone, nothing is left.
    assert state_of(folder) == before, what


@pytest.mark.parametrize("source", SOURCES)
def test_no_table_that_is_read_is_lost(case, tmp_path, source):
    for number in range(2):
        index = (list(SOURCES).index(source) + 3 * number) % len(COMMANDS)
        attack_an_input(case, tmp_path / str(number), source, COMMANDS[index])


def given_encoding(rows: Path) -> Encoding:
    from expost.data import open_table

    table = open_table(str(rows), columns=["a", "b", "level", "y"])
    return Encoding.read(table, target="y", given=GIVEN)


def test_no_other_file_that_is_read_is_lost(case, tmp_path):
    """Encoding, ledger, holdout, model and summary, each under the name of a result."""
    out, page = tmp_path / "o", tmp_path / "page"
    out.mkdir()
    encoding = given_encoding(case.rows).save(out / "encoding.json")
    holdout = out / "audit.parquet"
    shutil.copyfile(case.rows, holdout)
    ledger = out / "summary.CURATOR-ONLY.json"
    shutil.copyfile(case.model, tmp_path / "model.json")
    assert case.server.run("ledger", tmp_path, "--add", tmp_path / "model.json").code == 0
    shutil.copyfile(tmp_path / NAME, ledger)
    commands = {
        "encoding": (*case.command("profile")[:4], "--encoding", encoding),
        "ledger": (*case.command("profile"), "--ledger", ledger),
        "holdout": (*case.command("audit")[:4], "--model", case.model, "--holdout", holdout),
    }
    before = state_of(out)
    for name, command in commands.items():
        done = case.server.run(*command, "--out", out, "--force")
        assert (done.code, is_one_sentence(done)) == (2, True), (name, done)
        assert re.search("would be lost|name of a result", done.err), (name, done)
        assert state_of(out) == before, name
    # A page of a summary in the place of that summary, by another name.
    assert case.server.run("risk", "--epsilon", 1, "--out", page).code == 0
    (tmp_path / "named").symlink_to(page)
    before = state_of(page)
    asked_page = ("report", tmp_path / "named" / "summary.json", "--out", page, "--force")
    done = case.server.run(*asked_page)
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert state_of(page) == before


def test_what_expost_did_not_write_is_not_written_over(case, tmp_path):
    """A file of a result's name that no run listed, or that was changed since."""
    out = tmp_path / "o"
    assert case.run("profile", "--out", out, "--seed", 1).code == 0
    for name in ("report.CURATOR-ONLY.html", "model.json", "transition.png"):
        path = out / name
        kept = path.read_bytes() if path.exists() else None
        path.write_text("changed by hand")
        before = state_of(out)
        done = case.run("profile", "--out", out, "--force")
        assert (done.code, is_one_sentence(done)) == (2, True), done
        assert "expost did not write" in done.err
        assert state_of(out) == before
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)
    (out / "notes.txt").write_text("mine")
    assert case.run("profile", "--out", out, "--force").code == 0
    assert (out / "notes.txt").read_text() == "mine"


def test_a_model_is_profiled_where_it_lies_and_is_not_touched(case, tmp_path):
    out = tmp_path / "o"
    out.mkdir()
    shutil.copyfile(case.model, out / "model.json")
    before = state_of(out)["model.json"]
    command = (*case.command("profile"), "--model", out / "model.json", "--out", out, "--force")
    for _ in range(2):
        assert case.server.run(*command).code == 0
        assert state_of(out)["model.json"] == before


# -- 3. two runs in one folder ---------------------------------------------------------------------


def attack_in_pairs(servers: list[ForkServer], case: Case, folder: Path, *options: object) -> int:
    """Run the command twice at once; how many were refused."""
    out, ended, before = folder / "o", [None, None], case.releases
    folder.mkdir(parents=True)

    def run(number: int) -> None:
        command = (*case.command("profile"), *options)
        ended[number] = servers[number].run(*command, "--out", out)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = sorted(done.code for done in ended)
    assert codes == [0, 2], ended
    (lost,) = [done for done in ended if done.code == 2]
    assert is_one_sentence(lost), lost
    words = "another process|not empty|unfinished run"
    assert re.search(words, lost.err), lost
    assert_consistent(case, out, before)
    return 1


def assert_consistent(case: Case, out: Path, before: tuple[str, ...]) -> None:
    """The profile is that of model.json, the one release that the ledger lists since ``before``."""
    model = json.loads((out / "model.json").read_text())
    assert case.releases == (*before, model["sha256"])
    assert ledger_in(out).samefile(case.ledger)
    encoding = Encoding.from_json(model["encoding"])
    encoded = encoding.encode_table(encoding.open(str(case.rows), id_column="key"))
    no, yes = encoding.target.classes
    result = expost.profile(out / "model.json", encoded.X, np.where(encoded.y > 0, yes, no))
    kept = pq.read_table(out / TABLE)
    by_key = dict(zip(kept["id"].to_pylist(), kept["loss"].to_pylist(), strict=True))
    losses = [by_key[str(key)] for key in encoded.ids]
    np.testing.assert_allclose(result.loss, losses, rtol=0, atol=1e-12)
    assert not (out / RUN).exists()


@pytest.fixture(scope="module")
def servers(server):
    second = ForkServer()
    yield [server, second]
    second.close()


def test_of_two_runs_in_one_folder_one_is_refused(servers, case, tmp_path):
    for number in range(FEW):
        attack_in_pairs(servers, case, tmp_path / str(number))


# -- 6. a run's folder is not trusted --------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(case, tmp_path_factory) -> Path:
    """A run in blocks that has drawn its model, listed it, and was then killed."""
    folder = tmp_path_factory.mktemp("begun")
    command = (*case.command("profile in blocks"), "--out", "o", "--ledger", "l.json")
    run = folder / "o" / RUN

    def has_drawn() -> bool:
        return (run / "state.json").exists() and any(run.glob("losses/part-000000-*"))

    for _ in range(20):
        shutil.rmtree(folder / "o", ignore_errors=True)
        (folder / "l.CURATOR-ONLY.json").unlink(missing_ok=True)
        done = case.server.run(*command, cwd=folder, kill_after=has_drawn)
        if done.was_killed and has_drawn():
            return folder
    raise AssertionError("never killed between the model and the end")


def _without(name: str) -> Callable[[Path], None]:
    return lambda run: (run / f"{name}.json").unlink()


def _edited(name: str, edit: Callable[[dict], object]) -> Callable[[Path], None]:
    def forge(run: Path) -> None:
        path = run / f"{name}.json"
        value = json.loads(path.read_text())
        edit(value)
        path.write_text(json.dumps(value))

    return forge


def _value(**changed: object) -> Callable[[dict], object]:
    return lambda file: file["value"].update(changed)


FORGERIES: dict[str, Callable[[Path], None]] = {
    "facts: rows": _edited("facts", _value(rows=7)),
    "facts: text": _edited("facts", _value(rows="many", look=None)),
    "facts: content": _edited("facts", _value(content="00")),
    "facts: fields": _edited("facts", lambda file: file["value"].pop("summary")),
    "facts: list": _edited("facts", lambda file: file.update(value=[])),
    "facts: no seal": _edited("facts", lambda file: file.pop("seal")),
    "model: checksum": _edited("model", _value(sha256="0" * 64)),
    "model: number": _edited("model", _value(sha256=3)),
    "model: empty": _edited("model", lambda file: file.clear()),
    "model: notices": _edited("model", _value(reading=[3], fitting=None)),
    "state: salt": _edited("state", lambda file: file.update(salt="00" * 32)),
    "state: no salt": _edited("state", lambda file: file.update(salt=None)),
    "state: date": _edited("state", lambda file: file.update(made=["2026"])),
    "state: task": _edited("state", lambda file: file.update(task=None)),
    "state: blocks": _edited("state", lambda file: file.update(blocks="yes")),
    "state: list": lambda run: (run / "state.json").write_text("[]"),
    "state: text": lambda run: (run / "state.json").write_text('"state"'),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_file_of_a_run_is_one_sentence_and_nothing_is_drawn(
    case, begun, tmp_path, forgery
):
    folder = shutil.copytree(begun, tmp_path / "run", symlinks=True)
    FORGERIES[forgery](folder / "o" / RUN)
    model = (folder / "o" / "model.json").read_bytes()
    ledger = (folder / "l.CURATOR-ONLY.json").read_bytes()
    command = (*case.command("profile in blocks"), "--ledger", "l.json", "--resume")
    done = case.server.run(*command, "--out", "o", cwd=folder)
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert (folder / "o" / "model.json").read_bytes() == model
    assert (folder / "l.CURATOR-ONLY.json").read_bytes() == ledger


def test_a_model_that_the_ledger_lists_is_not_drawn_again_whatever_the_folder_says(
    case, begun, tmp_path
):
    command = (*case.command("profile in blocks"), "--ledger", "l.json", "--resume", "--out", "o")
    folder = shutil.copytree(begun, tmp_path / "a")
    model = (folder / "o" / "model.json").read_bytes()
    # The run has forgotten it: the ledger has not.
    _without("model")(folder / "o" / RUN)
    done = case.server.run(*command, cwd=folder)
    assert done.code == 0, done.err
    assert (folder / "o" / "model.json").read_bytes() == model
    assert len(Ledger.load(folder / "l.CURATOR-ONLY.json")) == 1
    # Both are gone: it is refused, and not drawn.
    folder = shutil.copytree(begun, tmp_path / "b")
    _without("model")(folder / "o" / RUN)
    (folder / "o" / "model.json").unlink()
    done = case.server.run(*command, cwd=folder)
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert "it is not drawn a second time" in done.err
    assert not (folder / "o" / "model.json").exists()
    assert len(Ledger.load(folder / "l.CURATOR-ONLY.json")) == 1


def test_neither_a_query_nor_a_password_is_kept(tmp_path):
    from expost.data import Query
    from expost.jobs.requests import ProfileRequest
    from expost.jobs.streaming import task_of

    secret, statement = "hunter2", "SELECT * FROM people WHERE diagnosis = 'kanarie'"
    url = f"postgresql://reader:{secret}@db.example/people"
    job = ProfileRequest(
        source=Query(url=url, sql=statement, key="id"), target="y", out=tmp_path / "o", name="q"
    )
    text = json.dumps(task_of("profile", job, {"rows": 3}))
    for word in (secret, "reader", "SELECT", "kanarie", "diagnosis"):
        assert word not in text
    assert "db.example" in text
    other = ProfileRequest(
        source=Query(url=url, sql=statement + " LIMIT 3", key="id"),
        target="y",
        out=tmp_path / "o",
        name="q",
    )
    assert task_of("profile", other, {"rows": 3}) != task_of("profile", job, {"rows": 3})


def test_a_report_that_the_ledger_lists_is_not_drawn_again(case, tmp_path):
    command = (*case.command("publish"), *SPENDS, "--ledger", "l.json", "--out", "o")
    ledger = tmp_path / "l.CURATOR-ONLY.json"

    def is_listed() -> bool:
        return (tmp_path / "o" / RUN / "report.json").exists() and ledger.exists()

    for _ in range(20):
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
        ledger.unlink(missing_ok=True)
        done = case.server.run(*command, cwd=tmp_path, kill_after=is_listed)
        if done.was_killed and is_listed():
            break
    else:
        raise AssertionError("never killed after it was listed")
    _without("report")(tmp_path / "o" / RUN)
    done = case.server.run(*command, "--resume", cwd=tmp_path)
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert "it is not drawn a second time" in done.err
    assert len(Ledger.load(ledger)) == 2


# -- what a second attacker tried ------------------------------------------------------------------


def test_a_finished_run_is_not_run_again_by_resume_and_force(case, tmp_path):
    command = (*case.command("profile"), "--out", "o")
    assert case.server.run(*command, cwd=tmp_path).code == 0
    before = state_of(tmp_path / "o")
    done = case.server.run(*command, "--force", "--resume", cwd=tmp_path)
    assert (done.code, "this run is finished" in done.err) == (0, True), done
    assert state_of(tmp_path / "o") == before
    # With a result gone it is not: and another model is not drawn in its place.
    (tmp_path / "o" / "report.CURATOR-ONLY.html").unlink()
    done = case.server.run(*command, "--resume", cwd=tmp_path)
    assert (done.code, "holds no unfinished run" in done.err) == (2, True), done


def test_a_forged_list_deletes_nothing(case, tmp_path):
    out = tmp_path / "o"
    rows = tmp_path / "o" / "people.parquet"
    assert case.run("profile", "--out", out, "--ledger", out / NAME).code == 0
    shutil.copyfile(case.rows, rows)
    (out / "thesis.docx").write_text("mine")
    kept = {name: (out / name).read_bytes() for name in ("thesis.docx", "people.parquet")}
    ledgers, beside = {NAME: 1}, table_ledger(rows).name
    for _ in range(2):
        value = json.loads((out / MANIFEST).read_text())
        for name in (*kept, *ledgers):
            value["files"][name] = [hashlib.sha256((out / name).read_bytes()).hexdigest()]
        (out / MANIFEST).write_text(json.dumps(value))
        assert case.run("profile", "--out", out, "--force", rows=rows).code == 0
        assert {name: (out / name).read_bytes() for name in kept} == kept
        # The ledger of the folder, and the one of the table that lies there.
        ledgers = {NAME: ledgers[NAME] + 1, beside: ledgers.get(beside, 0) + 1}
        assert {name: len(Ledger.load(out / name)) for name in ledgers} == ledgers
    # Nor are other names of a run's folder believed, its lock above all.
    value = json.loads((out / MANIFEST).read_text())
    for steps in (["lock"], ["precious.txt"], ["../thesis.docx"], [3], "drafts"):
        (out / MANIFEST).write_text(json.dumps({**value, "run": steps}))
        done = case.run("profile", "--out", out, "--force")
        assert (done.code, is_one_sentence(done)) == (2, True), (steps, done)
        assert "is not a list that this expost wrote" in done.err


def test_a_model_in_the_folder_of_a_run_is_an_input_too(case, begun, tmp_path):
    folder = shutil.copytree(begun, tmp_path / "run")
    draft = folder / "o" / RUN / "drafts" / ".model.json.0a1b2c3d.part"
    draft.parent.mkdir(exist_ok=True)
    shutil.copyfile(folder / "o" / "model.json", draft)
    command = (*case.command("profile"), "--model", draft, "--out", folder / "o", "--force")
    done = case.server.run(*command)
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert "is read by this command" in done.err
    assert draft.exists()


def test_a_picture_does_not_take_the_place_of_its_model(case, tmp_path):
    model = tmp_path / "model.png"
    shutil.copyfile(case.model, model)
    (tmp_path / "linked.png").hardlink_to(model)
    for plot in ("model.png", "linked.png"):
        done = case.server.run("risk", model, "--plot", tmp_path / plot)
        assert done.code == 2, done
        assert model.read_bytes() == case.model.read_bytes()
    assert case.server.run("risk", model, "--plot", tmp_path / "other.png").code == 0


def test_a_ledger_in_the_folder_of_the_results(case, tmp_path):
    out = tmp_path / "o"
    named = (*case.command("profile"), "--out", out, "--ledger", out / "all.json")
    assert case.run("profile", "--out", out, "--ledger", out / NAME).code == 0
    for _ in range(2):
        done = case.server.run(*named, "--force")
        assert done.code == 0, done
    assert len(Ledger.load(out / "all.CURATOR-ONLY.json")) == 2
    assert len(Ledger.load(out / NAME)) == 3
    # One under the name of a result, or behind a link, is refused before anything is drawn.
    before, releases = state_of(out), case.releases
    taken = (*case.command("profile"), "--out", out, "--ledger", out / "summary.json", "--force")
    done = case.server.run(*taken)
    assert (done.code, "is the name of a result" in done.err) == (2, True), done
    assert state_of(out) == before
    victim = tmp_path / "victim.json"
    (out / NAME).unlink()
    (out / NAME).symlink_to(victim)
    done = case.run("profile", "--out", out, "--force")
    assert (done.code, "is a symbolic link" in done.err) == (2, True)
    assert not victim.exists()
    assert case.releases == releases


def test_a_run_in_memory_takes_the_place_of_one_in_blocks(case, tmp_path):
    for first, second in (("epsilon in blocks", "epsilon"), ("epsilon", "epsilon in blocks")):
        out = tmp_path / first
        assert case.run(first, "--out", out).code == 0
        done = case.run(second, "--out", out, "--force")
        assert done.code == 0, done
        assert (out / "epsilon.CURATOR-ONLY.parquet").is_dir() == (second != "epsilon")


@pytest.fixture(scope="module")
def in_blocks(case, tmp_path_factory) -> Path:
    """A finished run in blocks."""
    out = tmp_path_factory.mktemp("blocks") / "o"
    assert case.run("profile in blocks", "--out", out).code == 0
    return out


@pytest.mark.parametrize("change", ["a draft", "a part", "more bytes", "a part is gone"])
def test_a_table_in_parts_that_was_changed_is_not_removed(case, in_blocks, tmp_path, change):
    out = shutil.copytree(in_blocks, tmp_path / "o")
    table = out / TABLE
    (part, *_) = sorted(table.glob("part-*"))
    if change == "a draft":
        (table / ".mine.part").write_text("mine")
    elif change == "a part":
        (table / f"part-000099-{64 * 'a'}.parquet").write_text("mine")
    elif change == "more bytes":
        part.write_bytes(part.read_bytes() + b"mine")
    else:
        part.unlink()
    before = state_of(out)
    done = case.run("profile in blocks", "--out", out, "--force")
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert state_of(out) == before


def _named_by_its_bytes(folder: Path, index: int, content: bytes) -> None:
    for path in folder.glob(f"part-{index:06d}-*"):
        path.unlink()
    name = f"part-{index:06d}-{hashlib.sha256(content).hexdigest()}.parquet"
    (folder / name).write_bytes(content)


def _parquet(table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


PARTS: dict[str, Callable[[Path], None]] = {
    "no Parquet": lambda folder: _named_by_its_bytes(folder, 0, b"garbage"),
    "empty": lambda folder: _named_by_its_bytes(folder, 0, b""),
    "other columns": lambda folder: _named_by_its_bytes(
        folder, 0, _parquet(pa.table({"a": np.arange(256)}))
    ),
    "one too many": lambda folder: _named_by_its_bytes(
        folder, 7, next(folder.glob("part-000000-*")).read_bytes()
    ),
    "fewer rows": lambda folder: _named_by_its_bytes(
        folder, 0, _parquet(pq.read_table(next(folder.glob("part-000000-*"))).slice(0, 10))
    ),
}


@pytest.mark.parametrize("forgery", PARTS)
def test_a_forged_part_is_one_sentence(case, begun, tmp_path, forgery):
    folder = shutil.copytree(begun, tmp_path / "run")
    losses = folder / "o" / RUN / "losses"
    PARTS[forgery](losses)
    command = (*case.command("profile in blocks"), "--ledger", "l.json", "--resume", "--out", "o")
    done = case.server.run(*command, cwd=folder)
    assert (done.code, is_one_sentence(done)) == (2, True), done
    assert len(Ledger.load(folder / "l.CURATOR-ONLY.json")) == 1


def test_a_page_does_not_take_the_place_of_a_profile_that_came_first(tmp_path):
    from expost.errors import InvalidInput
    from expost.jobs.workspace import held

    out = tmp_path / "o"
    out.mkdir()
    (out / "model.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"holds model\.json"), held(out, force=True, page=True):
        raise AssertionError("not reached")


def test_a_folder_that_is_replaced_while_a_command_works_is_not_written_to(tmp_path):
    from expost.errors import InvalidInput
    from expost.files.atomic import write_bytes
    from expost.jobs.workspace import held
    from expost.types import Audience

    out, victim = tmp_path / "o", tmp_path / "victim"
    victim.mkdir()
    with held(out, force=False) as workspace:
        write_bytes(out / "summary.json", Audience.PUBLIC, b"{}")
        out.rename(tmp_path / "moved")
        out.symlink_to(victim)
        with pytest.raises(InvalidInput, match="was replaced by another folder"):
            write_bytes(out / "report.html", Audience.PUBLIC, b"")
        assert workspace.written == {"summary.json"}
    assert list(victim.iterdir()) == []


# -- fifty of each ---------------------------------------------------------------------------------


@pytest.mark.long
def test_every_attack_fifty_times(servers, case, tmp_path):
    rng = np.random.default_rng(SEED)
    options = ((), ("--force",), ("--resume",), ("--force", "--resume"))
    for number in range(MANY):
        plant = list(PLANTS)[number % len(PLANTS)]
        chosen = options[int(rng.integers(len(options)))]
        name = COMMANDS[int(rng.integers(len(COMMANDS)))]
        attack_by_link(case, tmp_path / "link" / str(number), plant, name, *chosen)
    for number in range(MANY):
        source = list(SOURCES)[number % len(SOURCES)]
        name = COMMANDS[int(rng.integers(len(COMMANDS)))]
        attack_an_input(case, tmp_path / "input" / str(number), source, name)
    refused = sum(
        attack_in_pairs(servers, case, tmp_path / "pair" / str(number)) for number in range(MANY)
    )
    record(
        "attack-folders",
        command="pytest -m long tests/faults/test_attacked_folders.py",
        seed=SEED,
        figures={
            "links and foreign folders": {"attacks": MANY, "kinds": len(PLANTS), "failures": 0},
            "inputs under the names of results": {
                "attacks": MANY,
                "kinds": len(SOURCES),
                "failures": 0,
            },
            "two runs in one folder": {
                "pairs": MANY,
                "refused in one sentence": refused,
                "failures": 0,
            },
            "names that are guarded": len(RESULTS) + len(RELEASES),
        },
    )
