"""The whole of the lecture in small, and its verdicts against falsified numbers."""

import json
from dataclasses import replace

import pytest
from markupsafe import escape

from expost._counts import Share
from papers.common.claims import Verdict
from papers.lecture.experiments import Effort, Observers
from papers.lecture.run import (
    PHASES,
    active_claim,
    adversarial_claim,
    epochs_claim,
    limits_claim,
    penalty_claim,
    reproduce,
)
from papers.lecture.table import Cell, DefenceRow, DefenceTable
from program import names as names_of

HOLDS, PARTLY, FAILS = Verdict.HOLDS, Verdict.PARTLY, Verdict.FAILS
SMALL = Effort(rows=80, epochs=4, references=4, repetitions=2, trainings=2, tables=2, observed=25)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out, phases = tmp_path_factory.mktemp("lecture") / "out", []
    return reproduce(out, effort=SMALL, phase=phases.append), out, phases


def test_every_file_is_there_and_every_phase_is_reported(made):
    reproduction, out, phases = made
    assert len(phases) == len(set(phases)) == PHASES
    stems = ("defences-loss", "defences", "observers", "epochs")
    figures = {f"{stem}.{kind}" for stem in stems for kind in ("png", "csv")}
    assert set(names_of(out)) == figures | {"claims.json", "index.html"}
    kept = json.loads((out / "claims.json").read_text("utf-8"))
    assert [claim["key"] for claim in kept["claims"]] == list("abcde")
    page = (out / "index.html").read_text("utf-8")
    assert all(str(escape(claim.says)) in page for claim in reproduction.claims)


def test_tables_hold_the_figures(made):
    _, out, _ = made
    lines = (out / "defences.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 13
    assert lines[0].startswith("defence,train,train-low,train-high,test,")
    observed = (out / "epochs.csv").read_text("utf-8").splitlines()
    assert [line.split('"')[1] for line in observed[1:]] == ["1, 2, 3, 4, 5", "5, 10, 15, 20, 25"]


def row(name, *, attack, test=70, limit=None):
    def cell(hits):
        return Cell(shares=(Share(hits=hits, trials=100, confidence=0.95),))

    return DefenceRow(
        name=name, train=cell(99), test=cell(test), attack=cell(attack), limit=limit, by="loss"
    )


def table(*rows):
    return DefenceTable(rows=rows, members=100, others=100, references=0, confidence=0.95)


def test_the_claim_about_adversarial_regularisation_follows_its_numbers():
    def claim(attack, test):
        free = row("no defence, 64 units, 60 epochs", attack=70)
        return adversarial_claim(
            table(free, row("adversarial, λ = 1, 60", attack=attack, test=test))
        )

    assert claim(60, 69).verdict is HOLDS
    assert claim(60, 60).verdict is PARTLY
    assert claim(70, 60).verdict is FAILS


def test_the_claim_about_the_penalty_needs_both_attacks():
    def falls(by):
        return table(*(row(str(hits), attack=hits) for hits in (70, 65, 70 - by)))

    assert penalty_claim(falls(10), falls(10)).verdict is HOLDS
    assert penalty_claim(falls(10), falls(0)).verdict is PARTLY
    assert penalty_claim(falls(0), falls(0)).verdict is FAILS


def test_a_limit_is_passed_only_beyond_the_interval():
    assert limits_claim([table(row("a", attack=55, limit=0.5))]).verdict is HOLDS
    assert limits_claim([table(row("a", attack=80, limit=0.5))]).verdict is FAILS


def test_the_claims_about_observers_follow_their_numbers():
    right = Observers(
        auc={},
        gains={
            name: {"merged models": (0.01, 0.02, 0.03)}
            for name in ("active server", "active participant")
        },
        best="rise",
        accuracy={"1": {"ratio": (0.4, 0.5, 0.6)}, "9": {"ratio": (0.5, 0.6, 0.7)}},
        trainings=2,
    )
    assert active_claim(right).verdict is HOLDS
    assert epochs_claim(right).verdict is HOLDS
    gains = right.gains | {"active participant": {"merged models": (-0.01, 0.02, 0.03)}}
    assert active_claim(replace(right, gains=gains)).verdict is PARTLY
    assert epochs_claim(replace(right, accuracy={"1": right.accuracy["1"]})).verdict is FAILS
