"""``python -m papers d5.3``: the figures and the claims of MOSAICrOWN D5.3 (2020).

The paper comes in parts: ``bounds`` is chapters 3 and 4, which need no data; ``training`` is
chapter 5, thousands of trainings on MNIST, which need the extra ``torch``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from expost import _checks
from expost.errors import InvalidInput, require
from expost.jobs.output import writing
from papers.common.claims import Claim
from papers.common.exhibits import Exhibit
from papers.common.reproduction import Paper, Reproduction, reproduce_into
from papers.d53 import (
    advantage,
    belief,
    composition,
    curves,
    published,
    training_claims,
    training_figures,
    worlds,
)
from papers.d53 import training as trainings
from papers.datasets import load_mnist

__all__ = ["CONTENTS", "PARTS", "Part", "Request", "bounds", "phases", "reproduce", "training"]

CONTENTS = (
    "'bounds' makes Figures 3.2, 4.1 and 4.2 and the claims of chapters 3 and 4 again, from"
    " formulas alone, and 'training' Table 5.1, Figures 5.1 to 5.3 and the claims of chapter 5"
)
_FORMULAS = Paper(
    name="MOSAICrOWN D5.3 (2020)",
    title="Final Report on Privacy Metrics, Risks, and Utility",
    data="its formulas alone",
    made_from="formulas and sampled noise, without data of any person",
    rows=False,
)
_DIGITS = replace(
    _FORMULAS, data="formulas and MNIST", made_from="formulas and MNIST, a public set"
)
# Beside the results: finished trainings, from which the same command continues.
_KEPT = "trainings"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``training`` needs beyond a seed.

    ``data``     MNIST as a file, or None: found or fetched.
    ``effort``   how much is trained; ``workers`` processes, None: one for each processor.
    ``folder``   where finished trainings are kept, or None.
    """

    data: Path | None = None
    effort: trainings.Effort = field(default_factory=trainings.Effort)
    workers: int | None = None
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """What a part of the paper gives: claims and exhibits, in the order of the page."""

    claims: tuple[Claim, ...]
    exhibits: tuple[Exhibit, ...]
    source: str
    made: str


def bounds(
    seed: np.random.SeedSequence, phase: Callable[[str], None], request: Request | None = None
) -> Part:
    """Chapters 3 and 4, nothing written; there is nothing to request."""
    seeds = seed.spawn(4)
    phase("comparing two worlds")
    compared = worlds.measure_worlds()
    stepwise = worlds.measure_steps(seeds[0])
    phase("bounding beliefs")
    passed = belief.measure_passed(seeds[1])
    phase("bounding advantages")
    lines, games = curves.measure_curves(), curves.play(seeds[2])
    general = advantage.measure_general()
    phase("composing releases")
    composed = composition.measure_composed()
    routes = published.measure_routes()
    return Part(
        claims=(
            worlds.boundary_claim(compared),
            worlds.steps_claim(stepwise),
            belief.attained_claim(belief.measure_attained()),
            belief.passed_claim(passed),
            curves.delta_claim(lines),
            advantage.general_claim(general),
            curves.classical_claim(lines),
            curves.tight_claim(lines, games),
            advantage.inverse_claim(advantage.measure_inverse()),
            curves.low_and_high_claim(games),
            composition.printed_claim(composition.measure_printed()),
            composition.composition_claim(composed),
            published.published_claim(routes),
            published.same_advantage_claim(published.measure_trained(seeds[3])),
        ),
        exhibits=(
            worlds.worlds_exhibit(compared),
            worlds.errors_exhibit(compared),
            curves.curves_exhibit(lines),
            belief.passed_exhibit(passed),
            advantage.general_exhibit(general),
            composition.composition_exhibit(composed),
            published.published_exhibit(routes),
        ),
        source="none for chapters 3 and 4",
        made=(
            "Chapters 3 and 4 are about formulas. Each is computed as printed, and compared with"
            " what is exact: for Gaussian noise the law of the loss, N(μ²/2, μ²), and the analytic"
            " Gaussian mechanism (Balle and Wang 2018) for the least noise that is (ε, δ)-private;"
            " for mechanisms of any kind the tight bounds of Kairouz, Oh and Viswanath (2015). The"
            " attacker is the paper's: undecided before, and acquainted with every other row. Games"
            " are sampled only to see the closed forms confirmed."
        ),
    )


def training(seed: np.random.SeedSequence, phase: Callable[[str], None], request: Request) -> Part:
    """Chapter 5; of it finished trainings are written, if a folder is named."""
    digits = load_mnist(request.data)
    if request.folder is not None:
        # Before any work: a folder that cannot be made is refused now.
        with writing(request.folder, "free some space, or name another folder"):
            request.folder.mkdir(parents=True, exist_ok=True)
    results = trainings.measure(
        digits,
        seed,
        effort=request.effort,
        folder=request.folder,
        workers=request.workers,
        phase=phase,
    )
    return Part(
        claims=training_claims.claims(results),
        exhibits=training_figures.exhibits(results),
        source=f"MNIST for chapter 5 ({digits.source})",
        made=(
            "Chapter 5 trains the network of its Section 5.1 by DP-SGD with full batches of 100"
            f" random digits, C = 3, {request.effort.trainings} times in each of four cases, half"
            " of them on D and half on D', and follows the adversary of Algorithm 1 through every"
            " step. The belief counted is that in the world which was true; by the symmetry of"
            " Gaussian noise its law is that of the belief in D. Batch normalisation mixes rows, so"
            f" that no row has a gradient of its own: group norm stands in for it"
            f" ({results.parameters:,} parameters). The text does not say how many filters there"
            " are and prints plain gradient descent; the code that its authors published has 16 in"
            " each layer, Adam on the noisy gradients and new weights in every training, and so"
            " has this."
        ),
    )


_Make = Callable[[np.random.SeedSequence, Callable[[str], None], Request], Part]
# Each by the option that asks for it, and how often it reports a phase.
PARTS: Mapping[str, tuple[_Make, int]] = {
    "bounds": (bounds, 4),
    "training": (training, trainings.PHASES),
}


def phases(parts: Sequence[str]) -> int:
    """Return how often :func:`reproduce` reports a phase."""
    return sum(PARTS[name][1] for name in parts) + 1


def reproduce(
    out: Path,
    *,
    parts: Sequence[str] = ("bounds", "training"),
    request: Request | None = None,
    seed: int = 0,
    phase: Callable[[str], None] = lambda name: None,
    force: bool = False,
) -> Reproduction:
    """Write the figures of these ``parts`` with their numbers, and a page of claims, into ``out``.

    ``parts``    keys of ``PARTS``, at least one.
    ``request``  what the trainings need; they are kept in the folder ``trainings`` of ``out``, so
                 that the same call resumes after an interruption.
    ``seed``     of what is sampled: the same seed gives the same tables.
    ``phase``    receives the name of each phase, ``phases(parts)`` times.
    ``force``    write into a folder that is not empty, over an earlier run.
    """
    out = Path(out)
    if not parts:
        raise InvalidInput(f"parts: are none; {CONTENTS}.")
    parts = [_checks.one_of("parts", name, tuple(PARTS)) for name in parts]

    def from_parts(seed: int) -> Reproduction:
        chosen = Request() if request is None else request
        if "training" in parts:
            require("torch", caller="papers d5.3 --training", extra="torch")
            chosen = replace(chosen, folder=out / _KEPT)
        # A part draws the same with other parts and alone.
        seeds = dict(zip(PARTS, np.random.SeedSequence(seed).spawn(len(PARTS)), strict=True))
        made = [PARTS[name][0](seeds[name], phase, chosen) for name in PARTS if name in parts]
        return Reproduction(
            paper=_DIGITS if "training" in parts else _FORMULAS,
            claims=tuple(claim for part in made for claim in part.claims),
            exhibits=tuple(exhibit for part in made for exhibit in part.exhibits),
            source="; ".join(part.source for part in made),
            seed=seed,
            made=" ".join(part.made for part in made),
        )

    return reproduce_into(out, from_parts, seed=seed, phase=phase, force=force or _interrupted(out))


def _interrupted(out: Path) -> bool:
    """Return whether the folder holds nothing but finished trainings."""
    return out.is_dir() and all(path.name == _KEPT for path in out.iterdir())
