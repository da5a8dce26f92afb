"""``expost reproduce d5.3``: the figures and the claims of MOSAICrOWN D5.3 (2020).

The paper comes in parts: ``bounds`` is chapters 3 and 4, which need no data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expost import _validate
from expost._jobs.folder import check_folder
from expost.errors import InvalidInput
from expost.reproduce import (
    d53_advantage,
    d53_belief,
    d53_composition,
    d53_curves,
    d53_published,
    d53_worlds,
)
from expost.reproduce.claims import Claim
from expost.reproduce.exhibits import Exhibit
from expost.reproduce.reproduction import Paper, Reproduction, write

__all__ = ["CONTENTS", "PARTS", "Part", "bounds", "phases", "reproduce"]

CONTENTS = (
    "--bounds makes Figures 3.2, 4.1 and 4.2 and the claims of chapters 3 and 4 again, from"
    " formulas alone; nothing else of D5.3 is here"
)
_PAPER = Paper(
    name="MOSAICrOWN D5.3 (2020)",
    title="Final Report on Privacy Metrics, Risks, and Utility",
    data="its formulas alone",
    made_from="formulas and sampled noise, without anybody's data",
    rows=False,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """What a part of the paper gives: claims and exhibits, in the order of the page."""

    claims: tuple[Claim, ...]
    exhibits: tuple[Exhibit, ...]
    source: str
    made: str


def bounds(seed: np.random.SeedSequence, phase: Callable[[str], None]) -> Part:
    """Chapters 3 and 4, nothing written."""
    seeds = seed.spawn(4)
    phase("comparing two worlds")
    worlds = d53_worlds.measure_worlds()
    stepwise = d53_worlds.measure_steps(seeds[0])
    phase("bounding beliefs")
    passed = d53_belief.measure_passed(seeds[1])
    phase("bounding advantages")
    curves, games = d53_curves.measure_curves(), d53_curves.play(seeds[2])
    general = d53_advantage.measure_general()
    phase("composing releases")
    composed = d53_composition.measure_composed()
    routes = d53_published.measure_routes()
    return Part(
        claims=(
            d53_worlds.boundary_claim(worlds),
            d53_worlds.steps_claim(stepwise),
            d53_belief.attained_claim(d53_belief.measure_attained()),
            d53_belief.passed_claim(passed),
            d53_curves.delta_claim(curves),
            d53_advantage.general_claim(general),
            d53_curves.classical_claim(curves),
            d53_curves.tight_claim(curves, games),
            d53_advantage.inverse_claim(d53_advantage.measure_inverse()),
            d53_curves.low_and_high_claim(games),
            d53_composition.printed_claim(d53_composition.measure_printed()),
            d53_composition.composition_claim(composed),
            d53_published.published_claim(routes),
            d53_published.same_advantage_claim(d53_published.measure_trained(seeds[3])),
        ),
        exhibits=(
            d53_worlds.worlds_exhibit(worlds),
            d53_worlds.errors_exhibit(worlds),
            d53_curves.curves_exhibit(curves),
            d53_belief.passed_exhibit(passed),
            d53_advantage.general_exhibit(general),
            d53_composition.composition_exhibit(composed),
            d53_published.published_exhibit(routes),
        ),
        source="none for chapters 3 and 4",
        made=(
            "Chapters 3 and 4 are about formulas. Each is computed as printed, and beside it what"
            " is exact: for Gaussian noise the law of the loss, N(μ²/2, μ²), and the analytic"
            " Gaussian mechanism (Balle and Wang 2018) for the least noise that is (ε, δ)-private;"
            " for mechanisms of any kind the tight bounds of Kairouz, Oh and Viswanath (2015). The"
            " attacker is the paper's: undecided before, and acquainted with every other row. Games"
            " are sampled only to see the closed forms confirmed."
        ),
    )


# Each by the option that asks for it, and how often it reports a phase.
PARTS: Mapping[str, tuple[Callable[[np.random.SeedSequence, Callable[[str], None]], Part], int]] = {
    "bounds": (bounds, 4)
}


def phases(parts: Sequence[str]) -> int:
    """How often :func:`reproduce` reports a phase."""
    return sum(PARTS[name][1] for name in parts) + 1


def reproduce(
    out: Path,
    *,
    parts: Sequence[str],
    seed: int = 0,
    phase: Callable[[str], None] = lambda name: None,
    force: bool = False,
) -> Reproduction:
    """Write the figures of these ``parts`` with their numbers, and a page of claims, into ``out``.

    ``parts``  keys of ``PARTS``, at least one.
    ``seed``   of what is sampled: the same seed gives the same tables.
    ``phase``  is told what is being done, ``phases(parts)`` times.
    ``force``  write into a folder that is not empty, over an earlier run.
    """
    out = Path(out)
    if not parts:
        raise InvalidInput(f"parts: are none; {CONTENTS}.")
    parts = [_validate.one_of("parts", name, tuple(PARTS)) for name in parts]
    seed = _validate.whole("seed", seed, least=0)
    check_folder(out, force=force)
    # A part draws the same with others beside it and alone.
    places = dict(zip(PARTS, np.random.SeedSequence(seed).spawn(len(PARTS)), strict=True))
    made = [PARTS[name][0](places[name], phase) for name in PARTS if name in parts]
    phase("drawing and writing")
    return write(
        Reproduction(
            paper=_PAPER,
            claims=tuple(claim for part in made for claim in part.claims),
            exhibits=tuple(exhibit for part in made for exhibit in part.exhibits),
            source="; ".join(part.source for part in made),
            seed=seed,
            made=" ".join(part.made for part in made),
        ),
        out,
    )
