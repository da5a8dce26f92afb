"""The exposure of every row of a model that is trained with Opacus, from the run itself.

Conventions
-----------
As in :mod:`expost.mechanisms.dpsgd`. Opacus publishes (Σ clipped gradients + b) over a public
constant at every step; the tracker reads b, the clipped gradients and the batches' row numbers
while they exist, and keeps a few numbers a row.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from expost import _checks
from expost.auditing.lower_bounds import LowerBound
from expost.errors import InvalidInput, PrivacyLeakWarning
from expost.mechanisms.dpsgd import Adversary, Transcript
from expost.mechanisms.row_count import NoisyCount, RowCount, Scaling
from expost.neighbouring.persons import Persons, read_persons
from expost.notices import warn
from expost.profiles.attackers import Attackers, Audited, attackers_of
from expost.profiles.profile import Profile
from expost.profiles.transcript import IndividualEpsilon, individual_epsilon, transcript_profile
from expost.results import Displayed
from expost.risk import Composition, Guarantee
from expost.torch.account import Products, StepAccount
from expost.torch.accountant import read_accountant, recorded_steps, reported_epsilon
from expost.torch.batches import BatchLog, check_order, record_batches
from expost.torch.constants import described, mechanism_of, scaling_of
from expost.torch.full_pass import FullPass
from expost.torch.ghost import has_dropout
from expost.torch.noisy_step import NoisyStep, Piece, ProductSource
from expost.torch.opacus import StepWatch, check_optimizer, product_source
from expost.torch.persons import PersonSums
from expost.types import Audience, FloatArray, IntArray

__all__ = ["Tracker", "track"]

_HALF = (
    "Half precision: the losses are estimates, without certified intervals, because the rounding of"
    " its products is not bounded."
)
_MASKS = (
    "The model has dropout: losses are conditional on its masks, as for an attacker who knows them."
)
_IF_MASKS = (
    "If the model draws random numbers, as dropout does, losses are conditional on them, as for an"
    " attacker who knows them."
)
_PERSONS = (
    "Figures are of persons: all rows of a person leave at once. Guarantees are for a person with"
    " up to {} rows; the ε of an accountant is for one row."
)
_NO_ROWS: IntArray = np.empty(0, dtype=np.int64)
_INSECURE = (
    "The noise came from torch's generator, which is not secure (secure_mode=False): anyone who"
    " learns its seed can remove the noise."
)


def track(
    optimizer: Any,
    data_loader: Any,
    *,
    adversary: Adversary | str = Adversary.KNOWN_BATCHES,
    loss: Callable[[Any], Any] | None = None,
    every: int = 1,
    public_batches: bool = False,
    row_count: str | NoisyCount | None = None,
    model: Any = None,
    persons: Sequence[Any] | None = None,
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
    row_count : str | NoisyCount, optional
        What makes the divisor and the sampling rate constants, which every guarantee needs:
        'public' (everybody may know the number of rows), 'fixed' (both were chosen without the
        data), or the result of :func:`noisy_count`, from which both follow. None: not stated.
    model : Any, optional
        For ghost clipping: the first result of ``make_private(..., grad_sample_mode="ghost")``,
        the wrapped model, or the hooks with ``wrap_model=False``. Otherwise optional: two rows'
        gradients are then compared with autograd in the first step.
    persons : Sequence[Any], optional
        A key of the person of each row: every figure is then of a person, all of whose rows leave
        at once. Batches must be known, and ghost clipping may have one row of a person in a batch.

    Returns
    -------
    Tracker

    Raises
    ------
    InvalidInput
        If the optimizer or the loader cannot be tracked, or an option does not apply.

    Warns
    -----
    PrivacyLeakWarning
        If ``row_count`` is not stated: ``make_private`` computes the divisor and the sampling rate
        from the number of rows.

    Notes
    -----
    The loop, the model and the sampler stay as they are. Row numbers are those of the loader's
    data set. Adaptive and distributed clipping are refused, and loops whose batches cannot be
    identified.
    """
    check_optimizer(optimizer)
    adversary = Adversary.parse(adversary)
    mechanism = mechanism_of(optimizer, data_loader, public_batches)
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
    if loss is not None and not callable(loss):
        raise InvalidInput(
            f"loss={loss!r}: must be a function of a batch; pass loss=lambda batch:"
            " criterion(model(batch[0]), batch[1])."
        )
    if not hidden and (loss is not None or every != 1):
        raise InvalidInput(
            "loss, every: only hidden batches need them; leave them out, or use"
            " adversary='hidden-batches'."
        )
    if hidden and persons is not None:
        raise InvalidInput(
            "persons: if batches are hidden, the loss of a person is a sum over all subsets of the"
            " person's rows at each step, which is not computed; use adversary='known-batches'."
        )
    check_order(data_loader)
    source = product_source(optimizer, model)
    full_pass = FullPass(optimizer, data_loader, source, loss) if loss is not None else None
    people = None if persons is None else read_persons(persons, mechanism.rows)
    most = 1 if people is None else people.largest
    scaling = scaling_of(optimizer, data_loader, mechanism, row_count, rows_per_person=most)
    entries = mechanism if people is None else replace(mechanism, rows=len(people))
    if scaling.row_count is RowCount.UNKNOWN and scaling.notice is not None:
        warn(scaling.notice, PrivacyLeakWarning, stacklevel=2)
    return Tracker(
        optimizer,
        data_loader,
        source=source,
        model=model,
        transcript=Transcript(entries, adversary=adversary),
        full_pass=full_pass,
        every=every,
        description=described(mechanism, public_batches),
        scaling=scaling,
        persons=people,
    )


class Tracker(Displayed):
    """The privacy losses of one run of Opacus so far, made by :func:`track`. Curator-only.

    Parameters
    ----------
    optimizer, data_loader : Any
        The results of ``PrivacyEngine.make_private``.
    source : ProductSource
        Where the products of a step's rows are read.
    model : Any
        The model or its hooks, or None where neither is needed.
    transcript : Transcript
        The running sums, one entry per row, row numbers as in the loader's data set.
    full_pass : FullPass | None
        Computes the gradients of all rows, for hidden batches; None: batches are known.
    every : int
        At which steps that pass is made.
    description : str
        The run in one line.
    scaling : Scaling
        The divisor, the sampling rate, and whether they may depend on the number of rows.
    persons : Persons | None
        Whose row each row is, where the entries of the transcript are persons.
    """

    audience = Audience.CURATOR_ONLY

    def __init__(
        self,
        optimizer: Any,
        data_loader: Any,
        *,
        source: ProductSource,
        model: Any,
        transcript: Transcript,
        full_pass: FullPass | None,
        every: int,
        description: str,
        scaling: Scaling,
        persons: Persons | None,
    ) -> None:
        self.transcript = transcript
        self.description = description
        self.scaling = scaling
        self.persons = persons
        self._sums = None if persons is None else PersonSums(persons)
        self._accountant = read_accountant(optimizer)
        self._audited: Audited | None = None
        self._full_pass = full_pass
        self._every = every
        dimension = sum(p.numel() for p in optimizer.params)
        self._account = StepAccount(transcript, dimension)
        self._pieces: list[tuple[IntArray, Products]] = []
        self._widest = 1
        self._least_multiplier = transcript.mechanism.noise_multiplier
        self._secure = bool(optimizer.secure_mode)
        self._model, self._masked, self._certified = model, False, True
        self._passes, self._pass_seconds, self._started = 0, 0.0, time.perf_counter()
        self._log = BatchLog(
            rows=scaling.rows,
            ahead=data_loader.num_workers * (data_loader.prefetch_factor or 0),
            sampled=transcript.mechanism.sampling_rate < 1,
            stand_in=getattr(data_loader.collate_fn, "rand_on_empty", False),
            on_epoch=transcript.end_epoch,
        )
        self._unrecord = record_batches(data_loader.batch_sampler, self._log)
        self._watch = StepWatch(optimizer, source, on_piece=self._piece, on_step=self._step)

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
            Keys of the rows, in the order of the loader's data set; persons have their own.
        delta : float, default=1e-05
            A bound on the probability with which an exposure exceeds the worst case.

        Returns
        -------
        Profile
            The profile, one entry per row of the data set, or per person.

        Raises
        ------
        InvalidInput
            If ``ids`` are given for persons, or a step could not be tracked.
        """
        self._watch.check()
        if self.persons is not None:
            if ids is not None:
                raise InvalidInput("ids: persons have the keys of persons=; leave it out.")
            ids = self.persons.names
        return transcript_profile(
            self.transcript,
            description=f"{self.description}, {self.steps} steps of Opacus",
            ids=ids,
            delta=delta,
            notices=self.notices,
            hidden=self._steps_guarantee() if self.steps else None,
            count=self.scaling.guarantee,
            reported=reported_epsilon(self._accountant),
            owner=None if self.persons is None else self.persons.owner,
            untracked=self._untracked,
            audited=self._audited,
            one_row=self._one_row,
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
            The attacker of the accountant's ε first.

        Raises
        ------
        InvalidInput
            If no step was taken yet.
        """
        return attackers_of(
            self.transcript,
            delta=delta,
            hidden=self._steps_guarantee(),
            count=self.scaling.guarantee,
            reported=reported_epsilon(self._accountant),
            of_persons=self.persons is not None,
            untracked=self._untracked,
            audited=self._audited,
            one_row=self._one_row,
        )

    def report_lower_bound(self, bound: LowerBound) -> None:
        """Show a lower bound on ε from canaries next to the guarantees.

        Parameters
        ----------
        bound : LowerBound
            The result of :meth:`Planted.lower_bound`.

        Raises
        ------
        InvalidInput
            If the bound is something else.
        """
        if not isinstance(bound, LowerBound):
            raise InvalidInput(
                f"bound={bound!r}: must be what Planted.lower_bound() returned, a LowerBound."
            )
        self._audited = Audited(
            epsilon=bound.epsilon,
            delta=bound.delta,
            confidence=bound.confidence,
            detail=bound.detail,
        )

    def accountant_epsilon(self, delta: float = 1e-5) -> float | None:
        """Return the ε that the accountant of Opacus reports, if it could be read.

        Parameters
        ----------
        delta : float, default=1e-05
            δ of ε.

        Returns
        -------
        float | None
            ε of all steps that the accountant counted; None where there is no accountant.
        """
        reported = reported_epsilon(self._accountant)
        return None if reported is None else reported(delta)

    def guarantee(self) -> Guarantee:
        """Return the guarantee for any row of any data if the batches are hidden.

        Returns
        -------
        Guarantee
            The guarantee of the tracked steps, at the least noise of any of them, with that of a
            noisy number of rows.

        Raises
        ------
        InvalidInput
            If no step was taken yet.
        """
        guarantee = self.attackers().hidden
        assert guarantee is not None
        return guarantee

    @property
    def _untracked(self) -> int:
        """The steps that the accountant recorded before, after or besides the tracked ones."""
        return max(0, recorded_steps(self._accountant) - self.steps)

    @property
    def _one_row(self) -> Guarantee | None:
        """The guarantee for one row of a person, as a canary is, in any of the steps."""
        if self.persons is None or not self.steps:
            return None
        mechanism, noisy = self.transcript.mechanism, self.scaling.noisy
        steps = mechanism.sampled(self._least_multiplier * mechanism.clip, self.steps)
        return steps if noisy is None else Composition((steps, noisy.guarantee))

    def _steps_guarantee(self) -> Guarantee:
        mechanism = self.transcript.mechanism
        if not self.steps:
            raise InvalidInput("tracker: no step was taken yet; train first.")
        if mechanism.sampling_rate == 1:
            return self.transcript.guarantee()
        scale = self._least_multiplier * mechanism.clip
        return mechanism.sampled(scale, self.steps, rows_per_person=self.scaling.rows_per_person)

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
            If batches were sampled, because a row's gradient is unknown where it was not drawn.
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
        unit = "rows" if self.persons is None else "persons"
        return f"Tracker({self.transcript.mechanism.rows} {unit}, {self.steps} steps)"

    @property
    def notices(self) -> tuple[str, ...]:
        """What to know about the noise and the gradients of the run, and its divisor."""
        notice = self.scaling.notice
        return (
            *(() if notice is None else (notice,)),
            *(() if self.persons is None else (_PERSONS.format(self.scaling.rows_per_person),)),
            *self._watch.source.notices,
            *(() if self._certified else (_HALF,)),
            *((_MASKS,) if self._masked else (_IF_MASKS,) if self._may_draw else ()),
            *(() if self._secure else (_INSECURE,)),
        )

    @property
    def _may_draw(self) -> bool:
        """Whether draws are not excluded: hidden batches refuse them in their full passes."""
        return self.transcript.adversary is Adversary.KNOWN_BATCHES

    def detach(self) -> None:
        """Stop tracking; the losses so far are kept."""
        self._watch.detach()
        self._unrecord()

    def _piece(self, piece: Piece) -> None:
        """Remember the rows of a backward pass until the noise is added."""
        rows = np.concatenate(self._log.take(piece.lengths))
        if len(rows):  # else an empty batch, or its substitute
            if self._sums is not None:
                self._sums.add(rows, self._log.to_come, piece)
            self._pieces.append((rows, piece.products))
            self._widest = max(self._widest, *piece.lengths)

    def _step(self, step: NoisyStep) -> None:
        """Add the terms of a published step."""
        self._log.end_step()
        self._certified = self._certified and step.is_certified
        self._masked = self._masked or (self.steps == 0 and has_dropout(self._model))
        rows = np.concatenate([_NO_ROWS, *(rows for rows, _ in self._pieces)])
        if len(np.unique(rows)) < len(rows):
            raise InvalidInput(
                "data_loader: a row is twice in one step, which the loss of one row does not"
                " describe; sample without replacement, and make a step on every batch."
            )
        batch = np.zeros(self.transcript.mechanism.rows, dtype=np.bool_)
        batch[rows if self.persons is None else self.persons.owner[rows]] = True
        self._pieces += self._others(step, batch)
        computed = np.concatenate([_NO_ROWS, *(rows for rows, _ in self._pieces)])
        products = Products.joined([products for _, products in self._pieces])
        self._pieces.clear()
        if self._sums is not None:
            computed, products = self._sums.finish(computed, products)
        self._least_multiplier = min(self._least_multiplier, step.noise_multiplier)
        # Losses do not depend on the unit of length: gradients are rescaled to the first C.
        clip = self.transcript.mechanism.clip
        unit = clip / step.clip
        self._account.add(
            computed,
            batch,
            products.scaled(unit),
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
        pieces = list(self._full_pass.pieces(step, absent, self._widest))
        self._passes += 1
        self._pass_seconds += time.perf_counter() - start
        return pieces
