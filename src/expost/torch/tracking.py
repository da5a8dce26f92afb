"""The exposure of every row of a model that is trained with Opacus, from the run itself.

Conventions
-----------
As in :mod:`expost.mechanisms.dpsgd`. Opacus publishes (Σ clipped gradients + b) over a public
constant at every step; the tracker reads b, the clipped gradients and the batches' row numbers
while they exist, and keeps a few numbers a row.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost import _checks
from expost.errors import InvalidInput, require
from expost.mechanisms.dpsgd import Adversary, SGDMechanism, Transcript
from expost.profiles.profile import Profile
from expost.profiles.transcript import IndividualEpsilon, individual_epsilon, transcript_profile
from expost.results import Displayed
from expost.risk import Guarantee
from expost.torch.account import Products, StepAccount
from expost.torch.batches import BatchLog, record_batches
from expost.torch.full_pass import FullPass
from expost.torch.opacus import NoisyStep, StepWatch, check_optimizer
from expost.types import Audience, FloatArray, IntArray

__all__ = ["Tracker", "track"]

_NO_ROWS: IntArray = np.empty(0, dtype=np.int64)


def track(
    optimizer: Any,
    data_loader: Any,
    *,
    adversary: Adversary | str = Adversary.KNOWN_BATCHES,
    loss: Callable[[Any], Any] | None = None,
    every: int = 1,
    public_batches: bool = False,
) -> "Tracker":
    """Track a training run of Opacus; the :class:`Tracker` returns its profile.

    Parameters
    ----------
    optimizer, data_loader : Any
        The results of ``PrivacyEngine.make_private``.
    adversary : Adversary | str, default=Adversary.KNOWN_BATCHES
        'known-batches' (no extra pass), or 'hidden-batches', which needs the gradients of the rows
        that were not sampled too: a pass over all rows at every step, some n/(batch size) times the
        training's own cost.
    loss : callable, optional
        For hidden batches: loss(batch) of a batch of the loader, e.g. ``lambda batch:
        criterion(model(batch[0]), batch[1])``.
    every : int, default=1
        For hidden batches: make that pass at every k-th step only. In between, rows that were not
        sampled count with their mean, and their intervals cover the error (except with probability
        1e-6 per row).
    public_batches : bool, default=False
        The loader does not use Poisson sampling: no ε is amplified by sampling.

    Returns
    -------
    Tracker

    Raises
    ------
    InvalidInput
        If the optimizer or the loader cannot be tracked, or an option does not apply.

    Notes
    -----
    The loop, the model and the sampler stay as they are. Row numbers are those of the loader's
    data set. Ghost, adaptive and distributed clipping are refused, and loops whose batches cannot
    be identified.
    """
    check_optimizer(optimizer)
    adversary = Adversary.parse(adversary)
    mechanism = _mechanism(optimizer, data_loader, public_batches)
    every = _checks.integer("every", every, least=1)
    hidden = adversary is Adversary.HIDDEN_BATCHES
    if hidden and public_batches:
        raise InvalidInput(
            "public_batches=True: batches that are public hide no row; use"
            " adversary='known-batches'."
        )
    if hidden and loss is None:
        raise InvalidInput(
            "loss=None: hidden batches need the gradients of rows that were not sampled; pass"
            " loss=lambda batch: criterion(model(batch[0]), batch[1])."
        )
    if not hidden and (loss is not None or every != 1):
        raise InvalidInput(
            "loss, every: only hidden batches need them; leave them out, or use"
            " adversary='hidden-batches'."
        )
    full_pass = FullPass(optimizer, data_loader, loss) if loss is not None else None
    return Tracker(
        optimizer,
        data_loader,
        transcript=Transcript(mechanism, adversary=adversary),
        full_pass=full_pass,
        every=every,
        description=_described(mechanism, public_batches),
    )


class Tracker(Displayed):
    """The privacy losses of one run of Opacus so far, made by :func:`track`. Curator-only.

    Parameters
    ----------
    optimizer, data_loader : Any
        The results of ``PrivacyEngine.make_private``.
    transcript : Transcript
        The running sums, one entry per row, row numbers as in the loader's data set.
    full_pass : FullPass | None
        Computes the gradients of all rows, for hidden batches; None: batches are known.
    every : int
        At which steps that pass is made.
    description : str
        The run in one line.
    """

    audience = Audience.CURATOR_ONLY

    def __init__(
        self,
        optimizer: Any,
        data_loader: Any,
        *,
        transcript: Transcript,
        full_pass: FullPass | None,
        every: int,
        description: str,
    ) -> None:
        self.transcript = transcript
        self.description = description
        self._full_pass = full_pass
        self._every = every
        dimension = sum(p.numel() for p in optimizer.params)
        self._account = StepAccount(transcript, dimension)
        self._pieces: list[tuple[IntArray, Products]] = []
        self._widest = 1
        self._least_multiplier = transcript.mechanism.noise_multiplier
        self._secure = bool(optimizer.secure_mode)
        self._passes, self._pass_seconds, self._started = 0, 0.0, time.perf_counter()
        self._log = BatchLog(
            rows=transcript.mechanism.rows,
            ahead=data_loader.num_workers * (data_loader.prefetch_factor or 0),
            stand_in=getattr(data_loader.collate_fn, "rand_on_empty", False),
            on_epoch=transcript.end_epoch,
        )
        self._unrecord = record_batches(data_loader.batch_sampler, self._log)
        self._watch = StepWatch(optimizer, on_piece=self._piece, on_step=self._step)

    @property
    def steps(self) -> int:
        """The number of published noisy gradients."""
        return self.transcript.steps

    @property
    def posteriors(self) -> FloatArray:
        """(epochs, n) the posterior of each row after each full epoch, from a prior of ½."""
        self._watch.check()
        return np.asarray(expit(self.transcript.epochs.astype(np.float64)))

    def profile(self, ids: Sequence[Any] | None = None, *, delta: float = 1e-5) -> Profile:
        """Return the profile of the losses so far. Curator-only.

        Parameters
        ----------
        ids : Sequence[Any], optional
            Keys of the rows, in the order of the loader's data set.
        delta : float, default=1e-05
            A bound on the probability with which an exposure exceeds the worst case.

        Returns
        -------
        Profile
            The profile, one entry per row of the data set.
        """
        self._watch.check()
        return transcript_profile(
            self.transcript,
            description=f"{self.description}, {self.steps} steps of Opacus",
            ids=ids,
            delta=delta,
            notices=self.notices,
        )

    def guarantee(self) -> Guarantee:
        """Return the guarantee for any row of any data if the batches are hidden.

        Returns
        -------
        Guarantee
            The guarantee, at the least noise of any step.

        Raises
        ------
        InvalidInput
            If the batches are public or no step was made.
        InvalidInput
            If no step was taken yet.
        """
        mechanism = self.transcript.mechanism
        if not self.steps:
            raise InvalidInput("tracker: no step was taken yet; train first.")
        if mechanism.sampling_rate == 1:
            return self.transcript.guarantee()
        return mechanism.sampled(self._least_multiplier * mechanism.clip, self.steps)

    def individual_epsilon(self, delta: float = 1e-5) -> IndividualEpsilon:
        """Return each row's own ε(δ), if batches are public or full. Curator-only.

        Parameters
        ----------
        delta : float, default=1e-05
            δ of each ε, in (0, 1).

        Returns
        -------
        IndividualEpsilon
            ε of each row, and that of the worst case.

        Raises
        ------
        InvalidInput
            If batches are hidden.
        InvalidInput
            If batches were sampled.
        """
        self._watch.check()
        return individual_epsilon(self.transcript, delta)

    @property
    def cost(self) -> str:
        """The passes over rows outside of the batches, and their time."""
        if not self._passes:
            return "no extra pass over the data"
        total = time.perf_counter() - self._started
        return (
            f"{self._passes} passes over the rows that were not sampled:"
            f" {self._pass_seconds:.3g} of {total:.3g} seconds"
        )

    def __repr__(self) -> str:
        return f"Tracker({self.transcript.mechanism.rows} rows, {self.steps} steps)"

    @property
    def notices(self) -> tuple[str, ...]:
        """What to know about the noise of the run."""
        if self._secure:
            return ()
        return (
            "The noise came from torch's generator, which is not secure (secure_mode=False):"
            " anyone who learns its seed can remove the noise.",
        )

    def detach(self) -> None:
        """Stop tracking; the losses so far are kept."""
        self._watch.detach()
        self._unrecord()

    def _piece(self, lengths: list[int], products: Products) -> None:
        """Remember the rows of a backward pass until the noise is added."""
        rows = np.concatenate(self._log.take(lengths))
        if len(rows):  # else an empty batch, or its substitute
            self._pieces.append((rows, products))
            self._widest = max(self._widest, *lengths)

    def _step(self, step: NoisyStep) -> None:
        """Add the terms of a published step."""
        self._log.end_step()
        rows = np.concatenate([_NO_ROWS, *(rows for rows, _ in self._pieces)])
        if len(np.unique(rows)) < len(rows):
            raise InvalidInput(
                "data_loader: a row is twice in one step, which the loss of one row does not"
                " describe; finish every batch of BatchMemoryManager, and sample without"
                " replacement."
            )
        batch = np.zeros(self.transcript.mechanism.rows, dtype=np.bool_)
        batch[rows] = True
        self._pieces += self._others(step, batch)
        computed = np.concatenate([_NO_ROWS, *(rows for rows, _ in self._pieces)])
        products = Products.joined([products for _, products in self._pieces])
        self._pieces.clear()
        self._least_multiplier = min(self._least_multiplier, step.noise_multiplier)
        # Losses do not depend on the unit of length: gradients are rescaled to the first C.
        clip = self.transcript.mechanism.clip
        unit = clip / step.clip
        self._account.add(
            computed,
            batch,
            Products(inner=products.inner * unit**2, square=products.square * unit**2),
            step.noise_norm * unit,
            step.noise_multiplier * clip,
            rounding=step.rounding * unit,
        )

    def _others(self, step: NoisyStep, batch: NDArray[np.bool_]) -> list[tuple[IntArray, Products]]:
        """Return the products of the rows that were not sampled, at every k-th step."""
        mechanism = self.transcript.mechanism
        if self.transcript.adversary is Adversary.KNOWN_BATCHES:
            return []
        if self._every > 1 and step.noise_multiplier != mechanism.noise_multiplier:
            raise InvalidInput(
                f"every={self._every}: the noise multiplier changes during the run, so that every"
                " step must be computed; use every=1."
            )
        if self._full_pass is None or self.steps % self._every:
            return []
        start = time.perf_counter()
        absent = np.flatnonzero(~batch)
        pieces = [
            (piece, self._watch.products(step))
            for piece in self._full_pass.pieces(absent, self._widest)
        ]
        self._passes += 1
        self._pass_seconds += time.perf_counter() - start
        return pieces


def _mechanism(optimizer: Any, data_loader: Any, public_batches: bool) -> SGDMechanism:
    """Return the public constants of the run, from the optimizer and the sampler."""
    opacus = require("opacus.utils.uniform_sampler", caller="track", extra="torch")
    sampler = getattr(data_loader, "batch_sampler", None)
    if sampler is None:
        raise InvalidInput(
            "data_loader: has no batch sampler to read row numbers from; pass the loader that"
            " Opacus' PrivacyEngine.make_private returned."
        )
    if not getattr(data_loader, "in_order", True):
        raise InvalidInput("data_loader: in_order=False loses the order of batches; leave it out.")
    if isinstance(sampler, opacus.DistributedUniformWithReplacementSampler):
        raise InvalidInput("data_loader: distributed sampling is not tracked; use one process.")
    rows, rate = len(data_loader.dataset), 1.0
    if isinstance(sampler, opacus.UniformWithReplacementSampler):
        if sampler.num_samples != rows:
            raise InvalidInput(
                f"data_loader: its sampler draws from {sampler.num_samples} rows where its dataset"
                f" has {rows}; they must be of the same size."
            )
        rate = float(sampler.sample_rate)
    elif not public_batches:
        raise InvalidInput(
            f"data_loader: its {type(sampler).__name__} is not Poisson sampling; use"
            " make_private(..., poisson_sampling=True), or pass public_batches=True if batches are"
            " public."
        )
    return SGDMechanism(
        rows=rows,
        noise_multiplier=float(optimizer.noise_multiplier),
        clip=float(optimizer.max_grad_norm),
        sampling_rate=1.0 if public_batches else rate,
    )


def _described(mechanism: SGDMechanism, public_batches: bool) -> str:
    if not public_batches:
        return mechanism.describe()
    return (
        f"DP-SGD, noise multiplier {mechanism.noise_multiplier:g}, clip {mechanism.clip:g}, public"
        " batches"
    )
