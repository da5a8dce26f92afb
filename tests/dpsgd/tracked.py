"""A training loop of Opacus, watched from outside, and its losses the slow way.

The data set gives each row's number with it, so that batches are known without the tracker; what
was published is read by a step hook of the test's own.
"""

import copy
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager
from scipy.special import logsumexp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpsgd.naive import log_normal
from expost.torch import track

SIGMA, CLIP = 0.8, 1.5
HOOKS = "ignore:Full backward hook is firing"


def perceptron():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


@dataclass
class Noted:
    """One noisy sum: parameters before it, who was in it, what was published, its scale."""

    theta: np.ndarray
    batch: list[int]
    published: np.ndarray
    scale: float
    clip: float
    gradients: np.ndarray | None = None


@dataclass
class Run:
    """A loop of Opacus on some rows; ``tracker`` is None where it is not tracked."""

    rows: int = 12
    dtype: torch.dtype = torch.float64
    batch_size: int = 4
    workers: int = 0
    pieces: int = 0
    seed: int = 3
    poisson: bool = True
    separate: bool = False  # a generator of its own for the noise
    secure: bool = False  # Opacus' sums of several draws, without its generator
    make: object = perceptron
    given: tuple | None = None  # (X, y) instead of random rows
    weight: float = 1.0  # of the loss
    rate: float = 0.7
    mode: str = "hooks"  # of Opacus: also "ghost", or "fast" for fast gradient clipping
    wrap: bool = True
    optimizing: object = torch.optim.SGD
    private: dict = field(default_factory=dict)
    tracking: dict | None = field(default_factory=dict)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        X, y = 2 * rng.normal(size=(self.rows, 5)), rng.integers(3, size=self.rows)
        if self.given is not None:
            X, y = self.given
        X, y = torch.as_tensor(X), torch.as_tensor(y)
        X = X.to(self.dtype) if X.is_floating_point() else X
        self.data = TensorDataset(X, y, torch.arange(self.rows))
        torch.manual_seed(self.seed)
        module = self.make().to(self.dtype)
        self.plain = copy.deepcopy(module)
        self.engine = quiet(PrivacyEngine, accountant="rdp")
        trained = [p for p in module.parameters() if p.requires_grad]
        options = {
            "noise_multiplier": SIGMA,
            "max_grad_norm": CLIP,
            "poisson_sampling": self.poisson,
            "noise_generator": torch.Generator().manual_seed(1) if self.separate else None,
            "grad_sample_mode": "hooks" if self.mode == "hooks" else "ghost",
            "wrap_model": self.wrap,
            "criterion": nn.CrossEntropyLoss(),
            **self.private,
        }
        bare = module
        if self.mode == "fast":
            module = GradSampleModuleFastGradientClipping(
                module, max_grad_norm=options["max_grad_norm"], use_ghost_clipping=False
            )
        self.criterion = nn.CrossEntropyLoss()
        self.hooks, self.optimizer, *between, self.loader = self.engine.make_private(
            module=module,
            optimizer=self.optimizing(trained, lr=self.rate),
            data_loader=DataLoader(
                self.data,
                batch_size=self.batch_size,
                num_workers=self.workers,
                shuffle=not self.poisson,
            ),
            **options,
        )
        self.private_criterion = between[0] if between else self.criterion
        self.model = self.hooks if self.wrap else bare
        self.optimizer.secure_mode = self.secure
        self.noted: list[Noted] = []
        self.current: list[int] = []
        account = self.optimizer.step_hook
        self.optimizer.attach_step_hook(lambda optimizer: (self.note(), account(optimizer)))
        self.tracker = None
        if self.tracking is not None:
            if self.tracking.get("adversary") == "hidden-batches":
                self.tracking = {"loss": self.loss, **self.tracking}
            if self.mode != "hooks":
                self.tracking = {"model": self.hooks, **self.tracking}
            self.tracker = track(
                self.optimizer, self.loader, **{"row_count": "public", **self.tracking}
            )

    def loss(self, batch):
        return self.weight * self.private_criterion(self.model(batch[0]), batch[1])

    def note(self):
        optimizer = self.optimizer
        mean = optimizer.loss_reduction == "mean"
        divisor = optimizer.expected_batch_size * optimizer.accumulated_iterations if mean else 1
        self.noted.append(
            Noted(
                theta=self.theta,
                batch=self.current,
                published=np.concatenate(
                    [p.grad.double().numpy().ravel() for p in optimizer.params]
                )
                * divisor,
                scale=optimizer.noise_multiplier * optimizer.max_grad_norm,
                clip=optimizer.max_grad_norm,
            )
        )
        self.current = []

    @property
    def theta(self):
        return np.concatenate([p.detach().double().numpy().ravel() for p in self.optimizer.params])

    def step(self, batch):
        self.optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            self.loss(batch).backward()
        self.current = self.current + batch[2].tolist()
        self.optimizer.step()

    def epochs(self, count=2):
        """The loop of a user, without and with BatchMemoryManager."""
        for _ in range(count):
            if self.pieces:
                with BatchMemoryManager(
                    data_loader=self.loader,
                    max_physical_batch_size=self.pieces,
                    optimizer=self.optimizer,
                ) as loader:
                    for batch in loader:
                        self.step(batch)
            else:
                for batch in self.loader:
                    self.step(batch)
        return self

    def gradients(self, noted):
        """(n, d) each row's clipped gradient by plain autograd, one row at a time."""
        trained = [p for p in self.plain.parameters() if p.requires_grad]
        with torch.no_grad():
            start = 0
            for p in trained:
                part = noted.theta[start : start + p.numel()]
                p.copy_(torch.tensor(part).view_as(p))
                start += p.numel()
        computed = []
        bounds = self.private.get("max_grad_norm")
        for x, y, _ in self.data:
            value = self.weight * self.criterion(self.plain(x[None]), y[None])
            parts = [part.double().numpy().ravel() for part in torch.autograd.grad(value, trained)]
            if isinstance(bounds, list):
                parts = [shortened(g, bound) for g, bound in zip(parts, bounds, strict=True)]
                computed.append(np.concatenate(parts))
            else:
                computed.append(shortened(np.concatenate(parts), noted.clip))
        return np.array(computed)

    def losses(self, *, rate=None, stretch=1.0, upto=None):
        """(n,) log p(transcript ∣ D) − log p(transcript ∣ D₋ᵢ), densities as they are defined.

        ``rate``: hidden coins of that probability. ``stretch``: with a wrong scale.
        """
        total = np.zeros(self.rows)
        for noted in self.noted[:upto]:
            if noted.gradients is None:
                noted.gradients = self.gradients(noted)
            g, s = noted.gradients, noted.scale * stretch
            for row in range(self.rows):
                rest = g[[i for i in noted.batch if i != row]].sum(axis=0)
                without = log_normal(noted.published, rest, s)
                there = log_normal(noted.published, rest + g[row], s)
                if rate is not None:
                    coin = [np.log1p(-rate) + without, np.log(rate) + there]
                    total[row] += logsumexp(coin) - without
                elif row in noted.batch:
                    total[row] += there - without
        return total


def shortened(g, bound):
    """Opacus' clipping."""
    return g * min(1.0, bound / (np.linalg.norm(g) + 1e-6))


def quiet(make, **options):
    """Opacus says that its generator is not a secure one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        return make(**options)
