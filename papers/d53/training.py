"""D5.3 chapter 5: the strong adversary on a network that learns digits, a thousand times and more.

Conventions
-----------
D          100 digits of MNIST, drawn at random; D' has one exchanged (bounded) or left out.
∥d∥        n·∥ĝ(D) − ĝ(D')∥, the distance of the two sums of clipped gradients.
goal       ρ_β = 0.9 at δ = 0.01 over 30 steps by RDP: μ with ρ_α = 0.2562, σ = √30/μ.

What the paper does not say is taken from the code that its authors published (the repository
security-research-identifiability-in-dpdl of SAP-samples): 16 filters in both layers, pixels over
255, Adam on the noisy gradients, new first weights in each training, the image with the largest
sum of SSIM distances as the one that is removed. The number of groups of the norm is ours.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from expost import _checks
from expost.errors import InvalidInput, require
from expost.types import IntArray, Neighbouring
from papers.d53 import formulas
from papers.d53.composition import BELIEF, DELTA, STEPS
from papers.datasets import Digits

if TYPE_CHECKING:
    from papers.d53.experiment import Experiment
    from papers.d53.sensitivity import Sensitivity

__all__ = [
    "CASES",
    "CLIP",
    "PHASES",
    "ROWS",
    "Case",
    "Choices",
    "Effort",
    "Measured",
    "Setting",
    "cnn",
    "measure",
    "sigma",
]

ROWS, CLIP, RATE = 100, 3.0, 0.005
_FILTERS, _GROUPS = 16, 4
# How often each experiment reports.
_TICKS = 10
# Places of the neighbours of Figure 5.3: three far ones, three near ones.
_FAR = _NEAR = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """One of the four of Table 5.1, with what is printed there."""

    key: str
    name: str
    relation: Neighbouring
    sensitivity: str
    advantage: float
    passed: float


CASES = (
    Case(
        key="bounded-local",
        name="bounded, local",
        relation=Neighbouring.REPLACE,
        sensitivity="local",
        advantage=0.239,
        passed=0.002,
    ),
    Case(
        key="bounded-global",
        name="bounded, global",
        relation=Neighbouring.REPLACE,
        sensitivity="global",
        advantage=0.194,
        passed=0.0,
    ),
    Case(
        key="unbounded-local",
        name="unbounded, local",
        relation=Neighbouring.REMOVE,
        sensitivity="local",
        advantage=0.228,
        passed=0.002,
    ),
    Case(
        key="unbounded-global",
        name="unbounded, global",
        relation=Neighbouring.REMOVE,
        sensitivity="global",
        advantage=0.273,
        passed=0.004,
    ),
)
# Choosing neighbours; four cases, their utility, and the seven neighbours of Figure 5.3.
PHASES = 1 + _TICKS * (2 * len(CASES) + _FAR + _NEAR + 1)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is trained; the tests take less.

    ``trainings``     of each case.
    ``neighbours``    of each neighbour of Figure 5.3; None: a twentieth. The paper takes a quarter,
                      but lengths hardly differ from training to training.
    ``utility``       of each case on ``utility_rows`` rows; None: one for every 250, on as many
                      rows as in the paper from 1,000 trainings on, and on a tenth before.
    ``pool``          images that may stand in, at most; None: all.
    ``looked``        of them whose gradients are compared.
    ``test``, ``utility_test``  images on which accuracies are measured.
    """

    trainings: int = 1000
    neighbours: int | None = None
    utility: int | None = None
    utility_rows: int | None = None
    pool: int | None = None
    looked: int = 2000
    test: int = 300
    utility_test: int = 5000

    def __post_init__(self) -> None:
        _checks.integer("trainings", self.trainings, least=20)

    @property
    def per_neighbour(self) -> int:
        """Trainings of each neighbour of Figure 5.3."""
        return max(4, self.trainings // 20) if self.neighbours is None else self.neighbours

    @property
    def per_utility(self) -> int:
        """Trainings of each case of Figure 5.2."""
        return max(2, self.trainings // 250) if self.utility is None else self.utility

    @property
    def rows_of_utility(self) -> int:
        """Images that Figure 5.2 trains on."""
        if self.utility_rows is not None:
            return self.utility_rows
        return 10_000 if self.trainings >= 1000 else 1000


def sigma() -> float:
    """σ of each step: √30/μ."""
    return math.sqrt(STEPS) / formulas.rdp_mu_from_belief(BELIEF, DELTA)


def cnn() -> Any:
    """Return the network of Section 5.1, with group norm for batch norm: 6,554 parameters."""
    torch = require("torch", caller="papers d5.3 --training", extra="torch")
    nn = torch.nn
    # The same weights at every call, which each training draws again.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, _FILTERS, 3),
            nn.ReLU(),
            nn.GroupNorm(_GROUPS, _FILTERS),
            nn.MaxPool2d(2),
            nn.Conv2d(_FILTERS, _FILTERS, 3),
            nn.ReLU(),
            nn.GroupNorm(_GROUPS, _FILTERS),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(25 * _FILTERS, 10),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """D, the images that may stand in, those of the utility, and those of the test.

    Each is (images, digits), uint8; ``more`` are those of the pool that D has beyond its 100 where
    utility is measured.
    """

    rows: tuple[Any, Any]
    pool: tuple[Any, Any]
    test: tuple[Any, Any]
    more: IntArray

    @classmethod
    def of(cls, digits: Digits, seed: np.random.SeedSequence, effort: Effort) -> "Setting":
        """Drawn at random; where there are no test images, the last of the others are taken."""
        order = np.random.default_rng(seed).permutation(len(digits.y_train))
        rows, rest = order[:ROWS], order[ROWS:]
        test_X, test_y = digits.x_test, digits.y_test
        if not len(test_y):
            held, rest = rest[: len(rest) // 5], rest[len(rest) // 5 :]
            test_X, test_y = digits.x_train[held], digits.y_train[held]
        rest = rest[: effort.pool]
        if not (len(rest) >= effort.looked and len(rest) and len(test_y)):
            raise InvalidInput(
                f"{digits.source}: has {len(digits.y_train)} training digits; must have at least"
                f" {effort.looked + ROWS}, and test digits."
            )
        return cls(
            rows=(digits.x_train[rows], digits.y_train[rows]),
            pool=(digits.x_train[rest], digits.y_train[rest]),
            test=(test_X[: effort.utility_test], test_y[: effort.utility_test]),
            more=np.arange(min(len(rest), effort.rows_of_utility - ROWS)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Choices:
    """Neighbours by SSIM and by gradients at first parameters.

    ``pairs``        (7, 2) row and candidate: the three furthest by SSIM, the three nearest, and
                     the furthest by gradients among those looked at.
    ``removed``      the most atypical row by SSIM; ``longest`` the one with the longest gradient.
    ``correlation``  Spearman's of the two distances, over the rows and those looked at.
    ``share``        of the pairs looked at whose gradients lie further apart than SSIM's choice.
    ``clipped``      the share of the rows of D whose gradient is longer than C.
    """

    pairs: IntArray
    removed: int
    longest: int
    correlation: float
    share: float
    clipped: float
    distance: float
    furthest: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Everything that was trained, by case and by neighbour."""

    cases: dict[str, "Experiment"]
    utility: dict[str, "Experiment"]
    neighbours: tuple["Experiment", ...]
    choices: Choices
    utility_rows: int
    parameters: int


def choose(setting: Setting, effort: Effort, seed: np.random.SeedSequence) -> Choices:
    """Choose the neighbours of D by dataset sensitivity (Def. 6), and by gradients."""
    from expost.torch.attacks import fresh_copy
    from papers.d53.sensitivity import dataset_sensitivity, gradient_sensitivity

    rng = np.random.default_rng(seed)
    by_images = dataset_sensitivity(setting.rows[0], setting.pool[0])
    atypical = dataset_sensitivity(setting.rows[0], relation="remove")
    module = fresh_copy(cnn(), rng)
    far = by_images.furthest(_FAR)
    # The furthest neighbour is among those looked at, so that it is compared too.
    others = np.setdiff1d(np.arange(len(setting.pool[1])), far[:, 1])
    looked = np.append(far[:, 1], rng.permutation(others)[: effort.looked - _FAR])
    rows = _scaled(*setting.rows)
    pool = _scaled(*(part[looked] for part in setting.pool))
    by_gradients = gradient_sensitivity(module, *rows, pool, clip=CLIP)
    lengths = gradient_sensitivity(module, *rows, clip=CLIP, relation="remove")
    subset = _chosen(by_images, looked)
    best = by_gradients.furthest(1)[0]
    chosen = by_gradients.distances[far[0, 0], 0]
    return Choices(
        pairs=np.concatenate(
            [far, by_images.nearest(_NEAR), [[best[0], looked[best[1]]]]], dtype=np.int64
        ),
        removed=atypical.row,
        longest=lengths.row,
        correlation=by_gradients.rank_correlation(subset),
        share=float(np.mean(by_gradients.distances > chosen)),
        clipped=float(np.mean(lengths.distances > 0.999 * CLIP)),
        distance=float(chosen),
        furthest=by_gradients.value,
    )


def measure(
    digits: Digits,
    seed: np.random.SeedSequence,
    *,
    effort: Effort,
    folder: Path | None,
    workers: int | None,
    phase: Callable[[str], None],
) -> Measured:
    """Choose neighbours and run every experiment; ``folder`` keeps finished trainings."""
    torch = require("torch", caller="papers d5.3 --training", extra="torch")
    seeds = [
        np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
        for number in range(3)
    ]
    phase("choosing neighbours")
    setting = Setting.of(digits, seeds[0], effort)
    choices = choose(setting, effort, seeds[1])
    lab = _Lab(setting, folder, workers, phase, int(seeds[2].generate_state(1, np.uint64)[0]))
    pair, removed = choices.pairs[0], (choices.removed, None)
    cases, utility = {}, {}
    for case in CASES:
        row, candidate = pair if case.relation is Neighbouring.REPLACE else removed
        cases[case.key] = lab.run(
            case.name, row, candidate, case.sensitivity, effort.trainings, test=effort.test
        )
    neighbours = tuple(
        lab.run(f"neighbour {number + 1}", row, candidate, "local", effort.per_neighbour)
        for number, (row, candidate) in enumerate(choices.pairs)
    )
    for case in CASES:
        row, candidate = pair if case.relation is Neighbouring.REPLACE else removed
        utility[case.key] = lab.run(
            f"utility of {case.name}",
            row,
            candidate,
            case.sensitivity,
            effort.per_utility,
            more=setting.more[setting.more != candidate] if candidate is not None else setting.more,
            test=effort.utility_test,
        )
    return Measured(
        cases=cases,
        utility=utility,
        neighbours=neighbours,
        choices=choices,
        utility_rows=ROWS + len(setting.more),
        parameters=sum(p.numel() for p in cnn().parameters() if isinstance(p, torch.Tensor)),
    )


@dataclass(frozen=True)
class _Lab:
    """Runs an experiment, keeps it in a file of its own, and reports a few times."""

    setting: Setting
    folder: Path | None
    workers: int | None
    phase: Callable[[str], None]
    entropy: int

    def run(
        self,
        name: str,
        row: int,
        candidate: int | None,
        sensitivity: str,
        trainings: int,
        *,
        more: IntArray | None = None,
        test: int = 0,
    ) -> "Experiment":
        from papers.d53.adversary import strong_adversary

        setting = self.setting
        parts = zip(setting.rows, setting.pool, strict=True)
        X, y = _scaled(
            *(own if more is None else np.concatenate([own, pool[more]]) for own, pool in parts)
        )
        other = None
        if candidate is not None:
            images, digit = _scaled(*(part[candidate : candidate + 1] for part in setting.pool))
            other = images[0], digit[0]
        ticks = 0

        def progress(done: int, total: int) -> None:
            nonlocal ticks
            while ticks < _TICKS * done // total:
                ticks += 1
                self.phase(f"{name}: {done} of {total} trainings")

        # Another seed, or more rows, are other trainings, which have a file of their own.
        key = hashlib.sha256(f"{name} {self.entropy}".encode()).digest()
        file = f"{name.replace(', ', '-').replace(' ', '-')}-{len(y)}-{key.hex()[:8]}.npz"
        return strong_adversary(
            cnn(),
            X,
            y,
            row=int(row),
            candidate=other,
            trainings=trainings,
            noise_multiplier=sigma(),
            clip=CLIP,
            learning_rate=RATE,
            steps=STEPS,
            sensitivity=sensitivity,
            optimizer="adam",
            fresh=True,
            test=_scaled(*(part[:test] for part in setting.test)) if test else None,
            belief=BELIEF,
            workers=self.workers,
            checkpoint=None if self.folder is None else self.folder / file,
            random_state=int.from_bytes(key[:8], "big"),
            progress=progress,
        )


def _scaled(images: Any, labels: Any) -> tuple[Any, Any]:
    """(n, 1, 28, 28) float32 in 0 … 1, and integers."""
    return (
        np.asarray(images, dtype=np.float32)[:, np.newaxis] / np.float32(255),
        np.asarray(labels, dtype=np.int64),
    )


def _chosen(sensitivity: "Sensitivity", columns: IntArray) -> "Sensitivity":
    from papers.d53.sensitivity import Sensitivity

    return Sensitivity(distances=sensitivity.distances[:, columns], relation=sensitivity.relation)
