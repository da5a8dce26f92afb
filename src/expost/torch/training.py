"""``train``: DP-SGD on a module, with an account of the privacy loss of every row.

Conventions
-----------
As in :mod:`expost.mechanisms.dpsgd`. A step is θ ← θ − α·(Σ g + b)/divisor, over the batch's rows;
the divisor is a public constant, never the number of sampled rows.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from expost import _checks
from expost._numerics import gamma
from expost.errors import (
    ConvergenceError,
    InvalidInput,
    PrivacyLeakWarning,
    SeededReleaseWarning,
)
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript
from expost.mechanisms.row_count import RowCount, Scaling
from expost.notices import warn
from expost.profiles.attackers import Attackers, attackers_of
from expost.profiles.profile import Profile
from expost.profiles.transcript import IndividualEpsilon, individual_epsilon, transcript_profile
from expost.results import Displayed
from expost.risk import Guarantee
from expost.torch.account import Products, StepAccount, squares
from expost.torch.draws import Draws, SeededDraws, draws_from
from expost.torch.gradients import RowGradients, check_module
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["Step", "Trainer", "Training", "as_tensors", "prepare", "train"]

Loss = Callable[[Any, Any], torch.Tensor]
Rows = tuple[torch.Tensor, torch.Tensor]

SIMULATION = (
    "A simulation: the noise came from a seed, and anyone who knows the seed can remove it."
)
REMEDY = (
    "The guarantee needs the number of rows to be public; else pass divisor=, chosen without the"
    " data."
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Training(Displayed):
    """One run of DP-SGD. Curator-only, except for ``module``, which is released.

    Parameters
    ----------
    module : torch.nn.Module
        The trained copy of the module that was passed.
    transcript : Transcript
        The sums over the steps, one entry a row.
    learning_rate : float
        α.
    divisor : float
        The public constant by which the noisy sum was divided.
    every : int, default=1
        At which steps gradients of rows outside the batch were computed.
    is_local : bool, default=False
        Whether the noise was scaled to one row's gradient: there is no guarantee.
    is_simulation : bool, default=False
        Whether the noise came from a seed.
    is_divisor_computed : bool, default=False
        Whether the divisor was computed from the number of rows.
    """

    module: torch.nn.Module
    transcript: Transcript
    learning_rate: float
    divisor: float
    every: int = 1
    is_local: bool = False
    is_simulation: bool = False
    is_divisor_computed: bool = False

    audience = Audience.CURATOR_ONLY

    @property
    def state_dict(self) -> dict[str, Any]:
        """The trained parameters, for ``module.load_state_dict``."""
        state: dict[str, Any] = self.module.state_dict()
        return state

    @property
    def mechanism(self) -> SGDMechanism:
        """The public constants of the run."""
        return self.transcript.mechanism

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.transcript.steps

    @property
    def losses(self) -> FloatArray:
        """(n,) log p(transcript ∣ D) − log p(transcript ∣ D without, or with another, row)."""
        return self.transcript.loss.copy()

    @property
    def posteriors(self) -> FloatArray:
        """(epochs, n) sigmoid(loss so far): the posterior after each epoch, from a prior of ½."""
        return expit(self.transcript.epochs.astype("float64"))

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee for any row of any data if the batches are hidden.

        None under local sensitivity. The profile's worst case is that of its own adversary.
        """
        return None if self.is_local else self.mechanism.guarantee(self.steps)

    def profile(self, ids: Sequence[Any] | None = None, *, delta: float = 1e-5) -> Profile:
        """Return the privacy loss of each row from the transcript. Curator-only.

        Parameters
        ----------
        ids : Sequence[Any], optional
            A key for each row.
        delta : float, default=1e-05
            The largest probability with which a loss exceeds the worst case.

        Returns
        -------
        Profile
            The profile, one entry per row.
        """
        return transcript_profile(
            self.transcript,
            ids=ids,
            delta=delta,
            guaranteed=not self.is_local,
            notices=(*self.notices, *((SIMULATION,) if self.is_simulation else ())),
            hidden=self.guarantee,
        )

    def attackers(self, *, delta: float = 1e-5) -> Attackers:
        """Return what is guaranteed against each attacker.

        Parameters
        ----------
        delta : float, default=1e-05
            δ of every figure.

        Returns
        -------
        Attackers
            The attacker of an accountant's ε first.
        """
        return attackers_of(
            self.transcript, delta=delta, hidden=self.guarantee, guaranteed=not self.is_local
        )

    @property
    def scaling(self) -> Scaling:
        """The divisor and the sampling rate, and whether they depend on the number of rows."""
        rows, rate = self.mechanism.rows, self.mechanism.sampling_rate
        computed = self.is_divisor_computed
        return Scaling(
            rows=rows,
            dimension=sum(p.numel() for p in self.module.parameters() if p.requires_grad),
            sampling_rate=rate,
            divisor=self.divisor,
            neighbour_divisor=(rows - 1) * rate if computed else None,
            source="divisor=None, n times the sampling rate" if computed else "the caller",
            remedy=REMEDY,
            row_count=RowCount.UNKNOWN if computed else RowCount.FIXED,
        )

    @property
    def notices(self) -> tuple[str, ...]:
        """What to know about the divisor."""
        notice = None if self.is_local else self.scaling.notice
        return () if notice is None else (notice,)

    def individual_epsilon(self, delta: float) -> IndividualEpsilon:
        """Return each row's own ε(δ) and the worst case of the run (full batch only).

        Without a ``norm_budget`` it is an account after the fact, not a guarantee.

        Parameters
        ----------
        delta : float
            δ of each ε, in (0, 1).

        Returns
        -------
        IndividualEpsilon
            ε of each row, and that of the worst case.

        Raises
        ------
        InvalidInput
            If batches were sampled, or the sensitivity is local.
        InvalidInput
            If batches were sampled, rows are replaced, or the sensitivity is local.
        """
        if self.is_local:
            raise InvalidInput(
                "sensitivity='local': the noise depends on the data, so that there is no epsilon;"
                " train with sensitivity='global'."
            )
        return individual_epsilon(self.transcript, delta)

    def __repr__(self) -> str:
        seeded = ", a simulation" if self.is_simulation else ""
        return (
            f"Training({self.mechanism.describe()}, {self.steps} steps,"
            f" n={self.mechanism.rows}{seeded})"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One step of a run. Curator-only: it holds the noise.

    Parameters
    ----------
    number : int
        The number of the step, counted from 0.
    parameters : torch.Tensor
        (d,) θ before the step.
    batch : IntArray
        The rows in the batch.
    noisy_sum : torch.Tensor
        (d,) the sum of clipped gradients plus b, which the step published.
    noise : torch.Tensor
        (d,) b.
    scale : float
        The standard deviation s of b.
    """

    number: int
    parameters: torch.Tensor
    batch: IntArray
    noisy_sum: torch.Tensor
    noise: torch.Tensor
    scale: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Trainer:
    """A training that may be run many times; :func:`expost.torch.train` runs one.

    Parameters
    ----------
    module : torch.nn.Module
        The network before the training.
    loss : Loss
        The loss of (outputs, targets) for a batch of one row.
    data : Rows
        (X, y), the rows and their labels.
    mechanism : SGDMechanism
        The public constants of the run.
    learning_rate : float
        α.
    divisor : float
        The public constant by which the noisy sum is divided.
    steps : int
        The number of steps.
    epoch_steps : int
        After how many steps losses are remembered.
    candidates : Rows, optional
        The rows that stand in, one for each row or one for all; None: rows are removed.
    adversary : Adversary, default=Adversary.KNOWN_BATCHES
        What the adversary sees.
    every : int, default=1
        At which steps gradients of rows outside the batch are computed.
    local_row : int, optional
        The row whose gradient sets the noise (local sensitivity), or None: global.
    is_divisor_computed : bool, default=False
        Whether the divisor was computed from the number of rows.
    """

    module: torch.nn.Module
    loss: Loss
    data: Rows
    mechanism: SGDMechanism
    learning_rate: float
    divisor: float
    steps: int
    epoch_steps: int
    candidates: Rows | None = None
    adversary: Adversary = Adversary.KNOWN_BATCHES
    every: int = 1
    local_row: int | None = None
    is_divisor_computed: bool = False

    def run(self, draws: Draws, on_step: Callable[[Step], None] | None = None) -> Training:
        """Train once with these draws.

        Parameters
        ----------
        draws : Draws
            The source of batches and noise.
        on_step : callable, optional
            Called after each step with its :class:`Step`.

        Returns
        -------
        Training
            The trained module and its transcript.

        Raises
        ------
        ConvergenceError
            If a gradient or the parameters are no longer finite.
        """
        run = _Run(self, draws)
        for number in range(self.steps):
            step = run.step(number)
            if on_step is not None:
                on_step(step)
            if (number + 1) % self.epoch_steps == 0 or number + 1 == self.steps:
                run.transcript.end_epoch()
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for name, value in run.gradients.named(run.theta).items():
                module.get_parameter(name).copy_(value)
        return Training(
            module=module,
            transcript=run.transcript,
            learning_rate=self.learning_rate,
            divisor=self.divisor,
            every=self.every,
            is_local=self.local_row is not None,
            is_simulation=isinstance(draws, SeededDraws),
            is_divisor_computed=self.is_divisor_computed,
        )


class _Run:
    """One run in progress."""

    def __init__(self, trainer: Trainer, draws: Draws) -> None:
        self.trainer = trainer
        self.draws = draws
        self.gradients = RowGradients(trainer.module, trainer.loss, trainer.mechanism.clip)
        self.theta = self.gradients.start.clone()
        self.transcript = Transcript(trainer.mechanism, adversary=trainer.adversary)
        self._account = StepAccount(self.transcript, self.gradients.dimension)
        # Σ∥g∥² of the filter.
        self._spent: FloatArray = np.zeros(trainer.mechanism.rows)

    def step(self, number: int) -> Step:
        """Take one step and account for it."""
        trainer, theta = self.trainer, self.theta
        mechanism = trainer.mechanism
        full = mechanism.sampling_rate == 1
        all_rows = np.ones(mechanism.rows, dtype=np.bool_)
        batch = all_rows if full else self.draws.coins(mechanism.rows, mechanism.sampling_rate)
        scale = self._scale()
        # Drawn first, independently of the gradients, so that b·g is computed while they exist.
        noise = torch.from_numpy(self.draws.normals(self.gradients.dimension) * scale)
        noise = noise.to(theta.device)
        hidden = self.transcript.adversary is Adversary.HIDDEN_BATCHES
        computed = np.flatnonzero(all_rows if hidden and number % trainer.every == 0 else batch)
        total, products = self._pass(computed, batch, noise)
        noisy = total + noise
        norm = float(torch.linalg.vector_norm(noise))
        self._account.add(computed, batch, products, norm, scale)
        self.theta = (theta.double() - trainer.learning_rate / trainer.divisor * noisy).to(
            theta.dtype
        )
        if not bool(torch.isfinite(self.theta).all()):
            raise ConvergenceError(
                f"learning_rate={trainer.learning_rate!r}: parameters are no longer finite after"
                f" {number + 1} steps; lower it."
            )
        return Step(
            number=number,
            parameters=theta,
            batch=np.flatnonzero(batch),
            noisy_sum=noisy,
            noise=noise,
            scale=scale,
        )

    def _scale(self) -> float:
        """Return s; local: σ·∥difference of the two sums∥, one row's gradient or its exchange.

        D5.3 Sec. 5 with erratum 11: ∥n·ĝ(D) − (n−1)·ĝ(D')∥ = ∥g∥, and ∥g − g'∥ where replaced.
        """
        row, mechanism = self.trainer.local_row, self.trainer.mechanism
        if row is None:
            return mechanism.noise_scale
        X, y = self.trainer.data
        difference = self.gradients.at(self.theta, X[row : row + 1], y[row : row + 1])
        others = self._others(np.array([row]))
        if others is not None:
            difference = difference - others
        scale = mechanism.noise_multiplier * float(torch.linalg.vector_norm(difference))
        if not scale > 0:
            raise ConvergenceError(
                f"row={row}: its gradient, or the difference to its candidate's, has become 0, and"
                " with it the noise of local sensitivity; use sensitivity='global'."
            )
        return scale

    def _others(self, rows: IntArray) -> torch.Tensor | None:
        """Return (rows, d) or (1, d): g' of these rows."""
        if self.trainer.candidates is None:
            return None
        X, y = self.trainer.candidates
        if len(X) > 1:
            X, y = X[rows], y[rows]
        return self.gradients.at(self.theta, X, y)

    def _pass(
        self, computed: IntArray, batch: NDArray[np.bool_], noise: torch.Tensor
    ) -> tuple[torch.Tensor, Products]:
        """Return the sum of the batch's gradients, and the products of all computed rows."""
        X, y = self.trainer.data
        total = torch.zeros_like(noise)
        parts = []
        for block in self.gradients.blocks(len(computed)):
            rows = computed[block]
            g = self._filtered(rows, self.gradients.at(self.theta, X[rows], y[rows]))
            total += torch.from_numpy(batch[rows].astype(np.float64)).to(g.device) @ g
            parts.append(Products.of(g, noise, self._others(rows)))
        return total, Products.joined(parts)

    def _filtered(self, rows: IntArray, g: torch.Tensor) -> torch.Tensor:
        """Return g, 0 for rows whose budget is spent (Feldman and Zrnic 2021, Alg. 3)."""
        budget = self.trainer.mechanism.norm_budget
        if budget is None:
            return g
        self._spent[rows] += squares(g)
        # So that Σ∥g∥² ≤ B² holds despite the rounding of squares and sums.
        room = budget**2 * (1 - 2 * gamma(self.gradients.dimension + self.trainer.steps + 8))
        active = torch.from_numpy(self._spent[rows] <= room).to(g.device)
        return torch.where(active.unsqueeze(1), g, 0.0)


def prepare(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    noise_multiplier: float,
    clip: float,
    learning_rate: float,
    epochs: int | None = None,
    steps: int | None = None,
    loss: Loss = torch.nn.functional.cross_entropy,
    sampling_rate: float | None = None,
    divisor: float | None = None,
    relation: Neighbouring | str = Neighbouring.REMOVE,
    candidates: tuple[Any, Any] | None = None,
    sensitivity: str = "global",
    row: int | None = None,
    adversary: Adversary | str = Adversary.KNOWN_BATCHES,
    every: int = 1,
    norm_budget: float | None = None,
    dtype: torch.dtype | None = None,
) -> Trainer:
    """Return the training that :func:`train` runs, checked, to be run many times; warns of nothing.

    Parameters
    ----------
    module : torch.nn.Module
        The module; a copy of it is trained.
    X, y : Any
        The rows and their labels.
    noise_multiplier : float
        σ: the noise on the sum of gradients has standard deviation σC, where rows are replaced 2σC
        (local sensitivity: σ times one row's difference).
    clip : float
        C, the length to which each row's gradient is clipped.
    learning_rate : float
        α.
    epochs, steps : int, optional
        Exactly one of them; an epoch is about 1/sampling_rate steps.
    loss : Loss, default=torch.nn.functional.cross_entropy
        The loss of (outputs, targets) for a batch of one row.
    sampling_rate : float, optional
        None: every step takes all rows. Otherwise each row takes part in each step with this
        probability (Poisson sampling).
    divisor : float, optional
        Public constant by which the noisy sum is divided; n·sampling_rate unless it is given.
    relation : Neighbouring | str, default=Neighbouring.REMOVE
        "remove" or "replace".
    candidates : tuple[Any, Any], optional
        (rows, labels) that stand in where rows are replaced: one for each row, or one for all.
    sensitivity : str, default="global"
        "local" scales the noise to the gradient of ``row`` (D5.3 Sec. 5): for experiments, since it
        depends on the data and gives no guarantee.
    row : int, optional
        The row whose gradient sets the noise, for local sensitivity.
    adversary : Adversary | str, default=Adversary.KNOWN_BATCHES
        "known-batches", or "hidden-batches": the adversary does not see whether the row was
        sampled. The latter needs the gradients of all rows (1/sampling_rate times the work).
    every : int, default=1
        Compute those gradients at every k-th step only. Intervals of losses then hold except with
        probability 1e-6.
    norm_budget : float, optional
        Leaves a row out for good before √Σ∥g∥² passes it (full batch): makes each row's own epsilon
        a guarantee.
    dtype : torch.dtype, optional
        torch.float64 to compute gradients in double precision.

    Returns
    -------
    Trainer

    Raises
    ------
    InvalidInput
        If an argument is invalid, or a row's gradient is not a function of that row alone.
    """
    check_module(module)
    module = copy.deepcopy(module)
    if dtype is not None:
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInput(f"dtype={dtype!r}: must be torch.float32 or torch.float64.")
        module = module.to(dtype)
    data = as_tensors(module, X, y, "X, y")
    n = len(data[0])
    rate = 1.0 if sampling_rate is None else sampling_rate
    mechanism = SGDMechanism(
        rows=n,
        noise_multiplier=noise_multiplier,
        clip=clip,
        sampling_rate=rate,
        relation=Neighbouring.parse(relation),
        norm_budget=norm_budget,
    )
    an_epoch = max(1, round(1 / rate))
    trainer = Trainer(
        module=module,
        loss=loss,
        data=data,
        mechanism=mechanism,
        learning_rate=_checks.positive("learning_rate", learning_rate),
        divisor=_checks.positive("divisor", n * rate if divisor is None else divisor),
        steps=_steps(epochs, steps, an_epoch),
        epoch_steps=an_epoch,
        candidates=_candidates(module, data, mechanism.relation, candidates),
        adversary=Adversary.parse(adversary),
        every=_checks.integer("every", every, least=1),
        local_row=_local_row(sensitivity, row, n),
        is_divisor_computed=divisor is None,
    )
    _check_together(trainer)
    return trainer


def _full_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of ``function`` with the options of :func:`prepare` in place of ``**``.

    For ``help`` and completion: the options are declared once, in :func:`prepare`.
    """
    own = inspect.signature(function)
    options = inspect.signature(prepare).parameters.values()
    added = [p for p in own.parameters.values() if p.kind is p.KEYWORD_ONLY]
    return own.replace(parameters=[*options, *added])


def train(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    random_state: int | np.random.Generator | None = None,
    on_step: Callable[[Step], None] | None = None,
    **options: Any,
) -> Training:
    """Train a copy of ``module`` by DP-SGD and account for the privacy loss of every row.

    Parameters
    ----------
    module : torch.nn.Module
        The network. It is copied, and stays as it is.
    X, y : Any
        The rows and their labels.
    random_state : int | np.random.Generator, optional
        A seed, for simulations. None draws from the operating system.
    on_step : callable, optional
        Called after each step with its :class:`Step`.

    Other Parameters
    ----------------
    noise_multiplier, clip, learning_rate, sampling_rate, divisor, norm_budget : float
        As for :func:`prepare`.
    epochs, steps, row, every : int
        As for :func:`prepare`.
    loss, relation, candidates, sensitivity, adversary, dtype
        As for :func:`prepare`.

    Returns
    -------
    Training

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    ConvergenceError
        If a gradient or the parameters are no longer finite.
    """
    trainer = prepare(module, X, y, **options)
    if trainer.local_row is not None:
        warn(
            "sensitivity='local': the noise is scaled to a row of the data, which is not private;"
            " use 'global' for a release.",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    if random_state is not None:
        warn(
            "random_state is set: anyone who knows the seed can remove the noise; use None for a"
            " real release.",
            SeededReleaseWarning,
            stacklevel=2,
        )
    return trainer.run(draws_from(random_state), on_step)


vars(train)["__signature__"] = _full_signature(train)


def _steps(epochs: int | None, steps: int | None, an_epoch: int) -> int:
    if (epochs is None) == (steps is None):
        raise InvalidInput(f"epochs={epochs!r}, steps={steps!r}: give exactly one of them.")
    if steps is not None:
        return _checks.integer("steps", steps, least=1)
    return an_epoch * _checks.integer("epochs", epochs, least=1)


def _local_row(sensitivity: str, row: int | None, n: int) -> int | None:
    _checks.one_of("sensitivity", sensitivity, ("global", "local"))
    if sensitivity == "global":
        if row is not None:
            raise InvalidInput(f"row={row!r}: only sensitivity='local' takes one; leave it out.")
        return None
    if row is None or not _checks.integer("row", row, least=0) < n:
        raise InvalidInput(
            f"row={row!r}: sensitivity='local' needs the number of the row that sets the noise,"
            f" from 0 to {n - 1}."
        )
    return int(row)


def _check_together(trainer: Trainer) -> None:
    """Refuse options that exclude each other."""
    mechanism = trainer.mechanism
    hidden = trainer.adversary is Adversary.HIDDEN_BATCHES
    if trainer.every > 1 and not (hidden and mechanism.sampling_rate < 1):
        raise InvalidInput(
            f"every={trainer.every}: only adversary='hidden-batches' with a sampling_rate leaves"
            " steps out; use 1."
        )
    if trainer.local_row is not None and mechanism.sampling_rate < 1:
        raise InvalidInput(
            f"sampling_rate={mechanism.sampling_rate!r}: local sensitivity is 0 at steps without"
            " the row, and so would be the noise; use the full batch (sampling_rate=None)."
        )
    if trainer.local_row is not None and mechanism.norm_budget is not None:
        raise InvalidInput(
            f"norm_budget={mechanism.norm_budget!r}: a filter gives no guarantee if the noise"
            " depends on the data; use sensitivity='global'."
        )


def _candidates(
    module: torch.nn.Module, data: Rows, relation: Neighbouring, candidates: Any
) -> Rows | None:
    if relation is Neighbouring.REMOVE:
        if candidates is not None:
            raise InvalidInput("candidates: relation='remove' takes none; leave it out.")
        return None
    if not isinstance(candidates, tuple | list) or len(candidates) != 2:
        raise InvalidInput("candidates: relation='replace' needs a pair (rows, labels).")
    others = as_tensors(module, candidates[0], candidates[1], "candidates")
    if len(others[0]) not in (1, len(data[0])) or others[0].shape[1:] != data[0].shape[1:]:
        raise InvalidInput(
            f"candidates: must be one row for each of {len(data[0])}, or one for all, shaped as X."
        )
    return others


def as_tensors(module: torch.nn.Module, X: Any, y: Any, name: str) -> Rows:
    """Return (X, y) on the module's device; real numbers in its precision."""
    parameter = next(module.parameters())

    def tensor(values: Any) -> torch.Tensor:
        try:
            converted = torch.as_tensor(values).detach().to(parameter.device)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidInput(f"{name}: must be tensors or arrays of numbers.") from None
        return converted.to(parameter.dtype) if converted.is_floating_point() else converted

    rows, labels = tensor(X), tensor(y)
    if rows.ndim < 1 or labels.ndim < 1 or not len(rows) == len(labels) >= 1:
        raise InvalidInput(f"{name}: must have as many labels as rows, and at least one.")
    if rows.is_floating_point() and not bool(torch.isfinite(rows).all()):
        raise InvalidInput(f"{name}: holds NaN or infinite values; drop or fill them.")
    return rows, labels
