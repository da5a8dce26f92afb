"""The catalogue: laws of every attack; attacks describe themselves, everything else reads it."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import expost
from auditing.games import evidence, made_up
from expost.auditing import Evidence, arrays_of, audit_arrays
from expost.auditing.attacks import ATTACKS, described
from expost.auditing.attacks.lira import LiraOffline, LiraOnline
from expost.auditing.attacks.rmia import RmiaOffline, RmiaOnline
from expost.auditing.attacks.shadow import Shadow
from expost.auditing.attacks.thresholds import Population
from expost.auditing.evidence import missing
from expost.errors import InvalidInput
from expost.jobs.options import options_of
from expost.jobs.requests import AuditRequest
from expost.report import document_of
from expost.report.document import Column

PACKAGE = Path(expost.__file__).parent
NEEDS = {"references", "out", "both", "population", "views", "extras"}


@dataclass(frozen=True, kw_only=True)
class Margin:
    """φ itself: all that a new attack has to state."""

    name: ClassVar[str] = "margin"
    needs: ClassVar[frozenset[str]] = frozenset()
    description: ClassVar[str] = "the log odds of the row's own label"
    white_box: ClassVar[bool] = False

    def __call__(self, evidence: Evidence) -> np.ndarray:
        return evidence.confidence.astype(np.float64)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_attacks_describe_themselves(name):
    attack = ATTACKS[name]
    assert attack.name == name
    assert attack.needs <= NEEDS
    assert 20 < len(attack.description) < 100
    assert "\n" not in attack.description
    assert not attack.white_box
    assert described(name) is attack
    # Attributes of the class: they are the same for all parameters.
    assert type(attack).description == attack.description


def test_signals_of_gradients_are_white_box_and_so_is_what_is_unknown():
    signals = [described(name) for name in ("gradient-norm", "gradient-inner-product")]
    assert len({first.description for first in [*ATTACKS.values(), *signals]}) == len(ATTACKS) + 2
    assert all(first.white_box for first in (*signals, described("my own")))


@pytest.mark.parametrize("name", list(ATTACKS))
def test_every_attack_keeps_the_protocol(name, tmp_path, monkeypatch):
    """A finite score for each row, the same again, in blocks and from a file; nothing changes."""
    attack = ATTACKS[name]
    made, _ = made_up(3, rows=300)
    before = {key: np.copy(value) for key, value in vars(made).items() if key != "extras"}
    scores = attack(made)
    assert missing(attack, made) is None
    assert scores.shape == (300,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(attack(made), scores)
    for key, value in before.items():
        np.testing.assert_array_equal(getattr(made, key), value, err_msg=key)
    shape = made.references.shape
    file = np.memmap(tmp_path / "references", dtype=np.float32, mode="w+", shape=shape)
    file[:] = made.references
    monkeypatch.setattr("expost._numerics._BLOCK_ROWS", 64)
    np.testing.assert_array_equal(attack(replace(made, references=file)), scores)


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("certain", [36.0, -36.0])
def test_constant_answers_are_no_evidence(name, certain):
    inside = np.tile([[True], [False]], (4, 60))
    outputs = np.tile(np.float32([1.0, 0.0]), (60, 1))
    made = evidence(
        np.full(60, certain),
        np.full((8, 60), certain),
        inside,
        views=outputs,
        reference_views=np.tile(outputs, (8, 1, 1)),
        population=np.full(9, certain),
        population_references=np.full((8, 9), certain),
    )
    scores = ATTACKS[name](made)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) == 0


@pytest.mark.parametrize("side", [True, False])
@pytest.mark.parametrize("kind", ["lira", "rmia"])
def test_rows_without_models_are_refused(kind, side):
    """Each row needs models without it, and for an online attack models with it."""
    made, _ = made_up(13)
    made.inside[:, 3] = side
    with pytest.raises(InvalidInput, match=f"{kind}-online|in all references"):
        ATTACKS[f"{kind}-online"](made)
    offline = ATTACKS[f"{kind}-offline"]
    if not side:
        assert np.isfinite(offline(made)).all()
        return
    with pytest.raises(InvalidInput, match=f"{kind}-offline needs models without each row"):
        offline(made)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: LiraOnline(estimates="median"), "estimates='median'"),
        (lambda: LiraOffline(estimates="median"), "estimates='median'"),
        (lambda: RmiaOnline(gamma=math.nan), "gamma="),
        (lambda: RmiaOffline(gamma=0.0), "gamma="),
        (lambda: RmiaOffline(a=math.nan), "from 0 to 1"),
        (lambda: RmiaOffline(a=1.1), "from 0 to 1"),
        (lambda: Population(least=0), "least=0"),
        (lambda: Shadow(trees=0), "trees=0"),
        (lambda: Shadow(seed=-1), "seed=-1"),
    ],
)
def test_settings_are_checked(make, named):
    with pytest.raises(InvalidInput, match=named):
        make()


def test_a_new_attack_is_one_line_of_the_catalogue(monkeypatch, program, tmp_path):
    rng = np.random.default_rng(0)
    losses, member = rng.exponential(size=60), np.arange(60) % 2
    before = audit_arrays(arrays_of(losses=losses, member=member))
    assert "margin" not in before.scores
    # What the shell completes.
    completed = options_of(AuditRequest)["attacks"].choices
    assert "margin" not in completed()

    monkeypatch.setitem(ATTACKS, Margin.name, Margin())

    result = audit_arrays(arrays_of(losses=losses, member=member))
    assert result.figures["margin"] == result.figures["loss"]
    assert set(
        audit_arrays(arrays_of(losses=losses, member=member), attacks=["margin"]).scores
    ) == {"margin"}
    assert "margin" in completed()
    (table,) = (
        block
        for section in document_of(result).sections
        for block in section.blocks
        if getattr(block, "columns", ())[1:2] == (Column(title="compares", numeric=False),)
    )
    assert ("margin", Margin.description) in [row[:2] for row in table.cells]
    path = tmp_path / "answers.npz"
    np.savez(path, losses=losses, member=member)
    done = program("audit", "--arrays", path, "--attack", "margin", "--out", tmp_path / "out")
    assert done.code == 0, done.message
    assert "margin" in done.out + done.err


def test_no_other_module_names_an_attack():
    """A list of attacks elsewhere would have to be changed with the catalogue."""
    named = re.compile("|".join(f"[\"']{re.escape(name)}[\"']" for name in ATTACKS if "-" in name))
    sources = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "attacks"]
    assert len(sources) > 200
    assert [path.name for path in sources if named.search(path.read_text())] == []
    within = (PACKAGE / "auditing" / "attacks").glob("*.py")
    assert sum(len(named.findall(path.read_text())) for path in within) == 5
