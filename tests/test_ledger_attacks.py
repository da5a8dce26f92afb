"""What an attacker of the ledger tried: edited, broken and misplaced files, and names of all kinds.

Each is refused in one sentence with exit code 2, nothing is written, and no ledger ever shrinks.
"""

import copy
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import expost
from expost.errors import InvalidInput
from expost.ledger import Ledger, list_release
from program import mode
from settings import OUTPUT

LEDGER = "ledger.CURATOR-ONLY.json"
ENTRY = {
    "release": "ab" * 32,
    "kind": "model",
    "made": "2026-01-31T12:00:00Z",
    "name": "report/model.json",
    "mechanism": "output",
    "noise": "laplace",
    "epsilon": 1.0,
    "delta": 0.0,
    "guarantee": {"law": "norm-laplace", "separation": 1.0, "dimension": 3},
    "dimension": 3,
    "rows": 300,
    "seeded": False,
    "read_from_data": 0,
    "data": None,
}


def signed(fields: dict) -> dict:
    """With the checksum that a careful forger would give it."""
    fields = {name: value for name, value in fields.items() if name != "sha256"}
    text = json.dumps(fields, sort_keys=True).encode()
    return {**fields, "sha256": hashlib.sha256(text).hexdigest()}


def ledger(*entries: dict, **fields) -> dict:
    plain = Ledger(salt="0f" * 32).to_json()
    return signed({**plain, "entries": list(entries or (ENTRY,)), **fields})


def with_field(name: str, value: object) -> dict:
    return ledger({**copy.deepcopy(ENTRY), name: value})


def model(folder: Path) -> Path:
    """A release by hand: it has no privacy, and takes no time."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    fitted = expost.PrivateLogisticRegression(epsilon=1.0, data_norm=10.0, classes=(0, 1), **OUTPUT)
    fitted.fit(X, (X[:, 0] > 0).astype(int))
    folder.mkdir(exist_ok=True)
    fitted.save(folder / "model.json")
    return folder / "model.json"


def refused(done) -> str:
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith("expost: ")
    assert done.err.count("\n") == 1
    return done.err


def test_the_ledger_that_is_attacked_is_whole(tmp_path):
    path = tmp_path / LEDGER
    path.write_text(json.dumps(ledger()))
    assert len(Ledger.load(path)) == 1


BROKEN = {
    "empty": b"",
    "zeros": b"\0" * 64,
    "bytes": bytes(range(128, 256)),
    "utf-16": json.dumps(ledger()).encode("utf-16"),
    "cut off": json.dumps(ledger()).encode()[:-40],
    "deep": b"[" * 100_000,
    "nan": json.dumps(ledger()).replace('"delta": 0.0', '"delta": NaN').encode(),
    "infinity": json.dumps(ledger()).replace('"delta": 0.0', '"delta": Infinity').encode(),
    "many digits": json.dumps(ledger()).replace(": 300", f": {'9' * 5000}").encode(),
    "edited": json.dumps(ledger()).replace('"epsilon": 1.0', '"epsilon": 0.1').encode(),
    # Escaped it is ASCII; no text holds it, and no file could be written from it.
    "surrogate": json.dumps(ledger({**ENTRY, "name": "\ud800"})).encode(),
}
FORGED = {
    "no list": ledger(entries={}),
    "text": ledger(entries="abc"),
    "numbers": ledger(entries=[1]),
    "twice": ledger(ENTRY, ENTRY),
    "more fields": ledger(extra=1),
    "salt": ledger(salt=5),
    "salt with blanks": ledger(salt=" " + "0f" * 31 + " "),
    "newer": ledger(format="expost-ledger/2"),
    # Other fields: tests/test_ledger.py.
    "too large": with_field("epsilon", 10**400),
    "noise": with_field("noise", "a\n\x1b[31mb"),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_and_left_as_it_is(tmp_path, program, content):
    path = tmp_path / LEDGER
    path.write_bytes(content)
    assert str(path) in refused(program("ledger", path))
    with pytest.raises(InvalidInput):
        list_release(path, model(tmp_path / "m"))
    assert path.read_bytes() == content


@pytest.mark.parametrize("fields", FORGED.values(), ids=FORGED)
def test_a_forged_ledger_is_refused_for_what_is_in_it(tmp_path, program, fields):
    path = tmp_path / LEDGER
    path.write_text(json.dumps(fields))
    assert "is not a whole ledger" in refused(program("ledger", path))
    with pytest.raises(InvalidInput, match="is not a whole ledger"):
        Ledger.load(path)


def test_what_is_no_file_is_refused_at_once(tmp_path, program):
    os.mkfifo(tmp_path / "pipe.CURATOR-ONLY.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    names = ("pipe.CURATOR-ONLY.json", "folder.json", "loop.json", "gone.json", "absent.json")
    for path in (*(tmp_path / name for name in names), Path("/dev/zero"), tmp_path / ("x" * 5000)):
        refused(program("ledger", path))
    refused(program("ledger", tmp_path / names[0], "--add", model(tmp_path / "m")))


def test_a_folder_whose_name_is_no_text_is_listed_all_the_same(tmp_path, program):
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/odd\xff"))
    path = model(odd)
    assert program("ledger", odd, "--add", path).code == 0
    (entry,) = Ledger.load(odd / LEDGER).entries
    assert entry.name.endswith("odd\\udcff/model.json")
    assert mode(odd / LEDGER) == 0o600


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path, program):
    path = tmp_path / LEDGER
    path.write_text(json.dumps(with_field("name", "a\n\x1b[2Jb")))
    done = program("ledger", path)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "a\\n\\x1b[2Jb" in done.out


def test_a_linked_ledger_grows_where_it_lies(tmp_path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / LEDGER, tmp_path / LEDGER
    first, second = model(tmp_path / "a"), model(tmp_path / "b")
    list_release(real, first)
    link.symlink_to(real)
    os.chmod(real, 0o644)
    assert len(list_release(link, second)) == 2
    assert link.is_symlink()
    assert len(Ledger.load(real)) == 2
    assert mode(real) == 0o600


def test_a_ledger_never_shrinks(tmp_path):
    """Many at once, the same ones again, and one that is nonsense in between."""
    made = [model(tmp_path / f"m{index}") for index in range(6)]
    (tmp_path / "nonsense.json").write_text("{}")

    def add(path: Path) -> int:
        return len(list_release(tmp_path, path))

    with ThreadPoolExecutor(6) as pool:
        sizes = list(pool.map(add, [*made, *made]))
    assert set(sizes) <= set(range(1, 7))
    whole = Ledger.load(tmp_path / LEDGER).entries
    assert len(whole) == 6
    with pytest.raises(InvalidInput):
        add(tmp_path / "nonsense.json")
    add(made[0])
    assert Ledger.load(tmp_path / LEDGER).entries == whole
    assert not list(tmp_path.glob(".*"))
