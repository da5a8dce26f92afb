"""The catalogue: attacks describe themselves, and everything else reads it from them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import expost
from expost.auditing import Evidence, arrays_of, audit_arrays
from expost.auditing.attacks import ATTACKS, described
from expost.cli.options import _completion
from expost.jobs.requests import AuditRequest, options_of
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


def test_descriptions_differ():
    signals = [described(name) for name in ("gradient-norm", "gradient-inner-product")]
    assert len({one.description for one in [*ATTACKS.values(), *signals]}) == len(ATTACKS) + 2
    assert all(one.white_box for one in signals)


def test_an_unknown_signal_counts_as_white_box():
    unknown = described("my own")
    assert unknown.name == "my own"
    assert unknown.white_box
    assert "my own" not in ATTACKS


def test_a_new_attack_is_one_line_of_the_catalogue(monkeypatch, program, tmp_path):
    rng = np.random.default_rng(0)
    losses, member = rng.exponential(size=60), np.arange(60) % 2
    before = audit_arrays(arrays_of(losses=losses, member=member))
    assert "margin" not in before.scores
    completed = _completion(options_of(AuditRequest)["attacks"])
    assert completed("marg") == []

    monkeypatch.setitem(ATTACKS, Margin.name, Margin())

    found = audit_arrays(arrays_of(losses=losses, member=member))
    assert found.figures["margin"] == found.figures["loss"]
    assert set(
        audit_arrays(arrays_of(losses=losses, member=member), attacks=["margin"]).scores
    ) == {"margin"}
    assert completed("marg") == ["margin"]
    (table,) = (
        block
        for section in document_of(found).sections
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
