"""``expost reproduce leblond``: the figures and the claims of LeBlond et al. 2023.

Everything is computed before anything is written; index.html comes last, so that a folder that
holds one holds the rest. Adult is public, so the files may be shown to anybody.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from expost import _validate
from expost._files import write_bytes
from expost._jobs.folder import check_folder, writing
from expost.datasets import Dataset, load_adult
from expost.report.paper_displays import png
from expost.reproduce import gaussian, onset, peak, points, questions, regimes
from expost.reproduce.claims import Claim
from expost.reproduce.exhibits import Exhibit
from expost.reproduce.page import render_page
from expost.reproduce.setting import SIX, Effort, Setting, normalised_rows
from expost.types import Audience

__all__ = ["PHASES", "Reproduction", "reproduce"]

# How often `reproduce` reports a phase.
PHASES = 8
# A public table: what is drawn from it says nothing that is not known.
_AUDIENCE = Audience.PASS
_PAGE, _CLAIMS = "index.html", "claims.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduction:
    """What came out: the claims with their verdicts, the figures, and the files that hold them."""

    claims: tuple[Claim, ...]
    exhibits: tuple[Exhibit, ...]
    source: str
    seed: int
    effort: Effort
    files: tuple[Path, ...] = ()

    def lines(self) -> list[str]:
        """The verdicts for a person at a terminal, and where the page is."""
        width = max(len(claim.verdict.value) for claim in self.claims)
        lines = ["LeBlond et al. 2023, on UCI Adult", ""]
        lines += [
            f"  ({claim.key}) {claim.verdict.value:<{width}}  {claim.says}" for claim in self.claims
        ]
        if self.files:
            pictures = sum(path.suffix == ".png" for path in self.files)
            tables = sum(path.suffix == ".csv" for path in self.files)
            lines += [
                "",
                f"Files: {pictures} figures, {tables} tables, {_CLAIMS}",
                f"Page: {self.files[-1].resolve()}",
            ]
        return lines

    def to_json(self) -> str:
        """claims.json."""
        value = {
            "format": "expost-claims/1",
            "paper": "LeBlond et al. 2023",
            "data": self.source,
            "seed": self.seed,
            "claims": [claim.to_json() for claim in self.claims],
        }
        return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def reproduce(
    out: Path,
    *,
    data: Path | None = None,
    seed: int = 0,
    phase: Callable[[str], None] = lambda name: None,
    force: bool = False,
) -> Reproduction:
    """Write Figures 2–8 of the paper with their numbers, and a page of its claims, into ``out``.

    ``data``   a file of UCI Adult; where :func:`expost.datasets.load_adult` finds it if None.
    ``seed``   of everything that is sampled: the same seed gives the same tables.
    ``phase``  is told what is being done, ``PHASES`` times.
    ``force``  write into a folder that is not empty, over an earlier run.
    """
    out = Path(out)
    seed = _validate.whole("seed", seed, least=0)
    check_folder(out, force=force)
    phase("reading Adult")
    adult = load_adult(data)
    source = adult.source if data is None else f"UCI Adult, {Path(data).name}"
    found = compute(adult, seed=seed, effort=Effort(), source=source, phase=phase)
    phase("drawing and writing")
    return write(found, out)


def compute(
    adult: Dataset, *, seed: int, effort: Effort, source: str, phase: Callable[[str], None]
) -> Reproduction:
    """All claims and exhibits, nothing written."""
    train = adult.rows("train")
    X, y = normalised_rows(train)
    seeds = np.random.SeedSequence(seed).spawn(5)
    phase("finding every row's neighbour")
    setting = Setting.of(X, y)
    six = [Setting.of(*normalised_rows(part, SIX)) for part in (train, adult)]
    samples = points.draw_samples(X, y, seeds[0])
    phase("averaging profiles over models")
    ranked = regimes.measure_regimes(setting, effort.models, seeds[1])
    phase("sampling single rows")
    rows = onset.measure_onset(setting, effort, seeds[2])
    phase("finding the coverage peak")
    covered = peak.measure_peak(setting, effort, seeds[3])
    phase("the same under Gaussian noise")
    normal = gaussian.measure_gaussian(setting, effort, seeds[4])
    phase("other dimensions, other regularizations")
    widths = questions.measure_dimensions(train, effort.dimensions)
    penalties = questions.measure_regularizations(train, effort.regularizations)
    return Reproduction(
        claims=(
            regimes.regimes_claim(ranked),
            regimes.onset_claim(ranked),
            onset.scaling_claim(rows),
            points.farthest_row_claim(setting),
            points.worst_case_claim(*six),
            peak.peak_claim(covered),
            gaussian.gaussian_claim(normal),
            regimes.range_claim(ranked),
            onset.protection_claim(rows),
        ),
        exhibits=(
            points.worst_case_exhibit(setting),
            points.sphere_exhibit(setting),
            *points.heat_maps(setting),
            *regimes.profiles_exhibits(ranked),
            regimes.ranks_exhibit(ranked),
            onset.onset_exhibit(rows, setting),
            points.samples_exhibit(samples),
            peak.peak_exhibit(covered),
            gaussian.gaussian_exhibit(normal),
            questions.dimension_exhibit(widths),
            questions.regularization_exhibit(penalties),
        ),
        source=source,
        seed=seed,
        effort=effort,
    )


def write(found: Reproduction, out: Path) -> Reproduction:
    """Draw the exhibits and write every file, the page last."""
    pictures = {exhibit.name: png(exhibit.draw()) for exhibit in found.exhibits}
    contents = {f"{name}.png": picture for name, picture in pictures.items()}
    for exhibit in found.exhibits:
        contents |= {f"{stem}.csv": table.csv() for stem, table in exhibit.tables.items()}
    contents[_CLAIMS] = found.to_json().encode()
    contents[_PAGE] = render_page(
        claims=found.claims,
        exhibits=found.exhibits,
        pictures=pictures,
        source=found.source,
        seed=found.seed,
        effort=found.effort,
    ).encode()
    with writing(out, "free some space, or name another folder"):
        # A page of an earlier run must not stand beside tables of this one.
        (out / _PAGE).unlink(missing_ok=True)
        files = tuple(
            write_bytes(out / name, _AUDIENCE, content) for name, content in contents.items()
        )
    return replace(found, files=files)
