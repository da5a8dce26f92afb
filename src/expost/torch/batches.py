"""Which rows a step was made of: read from the batch sampler, since batches carry no numbers.

Conventions
-----------
batch    one list of row numbers that the sampler gave, in the order it gave them; may be empty.
pass     one iteration over the sampler (an epoch, an inspection of one batch, an evaluation).
piece    the rows of one backward pass: a batch, or a part of one where Opacus'
         ``BatchMemoryManager`` splits it.
ahead    how many batches data-loader workers may have drawn before the loop sees them.

A loader with ``num_workers=0`` draws a batch when the loop needs it, one with workers exactly
``ahead`` earlier, and both deliver in order. So the rows of a step are the oldest batch of the
newest pass that no step was made on, and there are never more than ``ahead`` younger ones: a loop
that leaves batches out, or fetches its own ahead, is seen and refused, not guessed. Empty batches
are no exception: where they are left out the number of steps is a function of the sample, which
no noise covers (a row that is alone in its batch would be the reason for a step). Nor are two
sampled batches in one step: a row can be in both, and its coins are then others than those of ε.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils.data import default_collate

from expost.errors import InvalidInput
from expost.torch.full_pass import Generators, rows_of
from expost.types import IntArray

__all__ = ["BatchLog", "check_order", "record_batches"]

# Rows that are collated to see their order.
_COLLATED = 8


class _Pass:
    """The batches of one iteration that no step was made on."""

    def __init__(self) -> None:
        self.waiting: deque[IntArray] = deque()
        self.ended = False
        self.stepped = False

    @property
    def is_over(self) -> bool:
        """Whether the loop has completed the iteration."""
        return self.ended and self.stepped and not self.waiting


class BatchLog:
    """The row numbers of the batches to come, in order.

    Parameters
    ----------
    rows : int
        n, the size of the data.
    ahead : int
        See above.
    sampled : bool
        Whether batches are drawn by Poisson sampling that guarantees rely on.
    stand_in : bool
        Whether the loader puts one random row where a batch is empty.
    on_epoch : callable
        Called when the loop has run a pass to its end.
    """

    def __init__(
        self,
        *,
        rows: int,
        ahead: int,
        sampled: bool,
        stand_in: bool,
        on_epoch: Callable[[], None],
    ) -> None:
        self.rows = rows
        self.ahead = ahead
        self.sampled = sampled
        self.stand_in = stand_in
        self._on_epoch = on_epoch
        self._newest = _Pass()
        self._used = 0  # rows of the oldest waiting batch that pieces were made of
        self._begun = 0  # batches that the step in progress has rows of

    def record(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches unchanged, and record each before it is used."""
        current: _Pass | None = None
        for batch in batches:
            if current is None:
                # Not before the first batch: loaders make iterators that they do not use.
                current = self._newest = _Pass()
                self._used = 0
            current.waiting.append(self._numbers(batch))
            yield batch
        if current is not None:
            current.ended = True
            if self.ahead == 0 and current.stepped and current.waiting:
                self._refuse_empty(current)
            self._close(current)

    def take(self, lengths: list[int]) -> list[IntArray]:
        """Return the rows of the next pieces, of these ``lengths``."""
        waiting = self._newest.waiting
        if len(waiting) > len(lengths) + self.ahead:
            self._refuse_empty(self._newest)
            raise InvalidInput(
                f"data_loader: the loop took {len(waiting) - self.ahead} batches for a step on"
                f" {len(lengths)}, so that the rows of the step are not known; make a step on"
                " every batch, in the loader's order."
            )
        self._newest.stepped = True
        return [self._piece(length) for length in lengths]

    @property
    def to_come(self) -> IntArray:
        """The rows of a batch that no piece was made of yet, where others were."""
        if not self._used:
            return np.empty(0, dtype=np.int64)
        return self._newest.waiting[0][self._used :]

    def end_step(self) -> None:
        """Check that the step was made of whole batches."""
        if self._used:
            raise InvalidInput(
                "data_loader: noise was added before all rows of a batch had their turn; step on"
                " whole batches, or split them with Opacus' BatchMemoryManager."
            )
        self._begun = 0
        self._close(self._newest)

    def _piece(self, length: int) -> IntArray:
        waiting = self._newest.waiting
        if not waiting:
            raise InvalidInput(
                "data_loader: a step was made on rows that this loader did not give; pass the"
                " loader that the loop iterates over, and start iterating after track(...)."
            )
        self._begun += not self._used
        if self.sampled and self._begun > 1:
            raise InvalidInput(
                "data_loader: a step sums several of its batches, and a row can be in each of them,"
                " which neither its guarantee nor a hidden batch's loss covers; make a step on"
                " every batch, with a larger sampling rate where a step needs more rows"
                " (BatchMemoryManager splits a batch that is too large for the memory)."
            )
        batch = waiting[0]
        if self.stand_in and not len(batch) and length == 1:
            length = 0
        if length:
            self._refuse_empty(self._newest)
        end = self._used + length
        if end > len(batch) or (length == 0 and len(batch)):
            raise InvalidInput(
                f"data_loader: a step has the gradients of {length} rows where the loader's batch"
                f" has {len(batch) - self._used}; step on the batches as they come, one row of"
                " data a row of the batch."
            )
        piece = batch[self._used : end]
        self._used = end
        if end == len(batch):
            waiting.popleft()
            self._used = 0
        return piece

    def _refuse_empty(self, current: _Pass) -> None:
        """Raise an error that names the empty batch which the loop has skipped, if any."""
        if len(current.waiting[0]) == 0:
            raise InvalidInput(
                "data_loader: the loop left an empty batch out, so that the number of steps tells"
                " of who was sampled, which no noise covers; make a step on empty batches too, as"
                " Opacus does."
            )

    def _close(self, current: _Pass) -> None:
        if current.is_over:
            current.stepped = False  # an epoch is reported once
            self._on_epoch()

    def _numbers(self, batch: Any) -> IntArray:
        numbers = np.asarray(batch)
        if numbers.size == 0:
            return np.empty(0, dtype=np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise InvalidInput(
                "data_loader: its batch sampler does not give lists of row numbers; use Opacus'"
                " Poisson sampler or torch.utils.data.BatchSampler."
            )
        if not (numbers.min() >= 0 and numbers.max() < self.rows):
            raise InvalidInput(
                f"data_loader: its batch sampler gives row numbers outside of its {self.rows} rows;"
                " sampler and dataset must be of the same size."
            )
        return numbers.astype(np.int64)


def record_batches(sampler: Any, log: BatchLog) -> Callable[[], None]:
    """Record the batches of ``sampler`` in ``log`` from now on; return a function to undo it.

    The object stays the same, of a class that differs in ``__iter__`` alone: other users of the
    object, e.g. a loader of ``BatchMemoryManager``, are recorded too, and draws are unchanged.
    """
    plain = type(sampler)

    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807 (becomes the method of a class)
        return log.record(plain.__iter__(self))

    try:
        sampler.__class__ = type(plain.__name__, (plain,), {"__iter__": __iter__})
    except TypeError:
        raise InvalidInput(
            f"data_loader: its batch sampler is a {plain.__name__}, which cannot be watched; use"
            " Opacus' Poisson sampler or torch.utils.data.BatchSampler."
        ) from None

    def undo() -> None:
        sampler.__class__ = plain

    return undo


def check_order(data_loader: Any) -> None:
    """Refuse a ``collate_fn`` that puts rows in another order than the sampler's.

    The first rows are collated again in reverse: a tensor with values of rows must then be
    reversed, and must not hold the same values in another order. Of a random ``collate_fn`` it
    cannot be told, and data that workers read is not read here, because a file that is opened here
    and in a worker may be read wrongly.
    """
    # Opacus' own remembers the first batch.
    collate = getattr(data_loader.collate_fn, "wrapped_collator_fn", data_loader.collate_fn)
    if data_loader.num_workers or collate in (None, default_collate):
        return
    before = Generators()
    try:
        rows = rows_of(data_loader.dataset, np.arange(min(_COLLATED, len(data_loader.dataset))))
        # Some functions change the rows that they get.
        forth, again, back = (
            list(_tensors(collate(deepcopy(part)))) for part in (rows, rows, rows[::-1])
        )
    finally:
        before.restore()
    is_random = not all(map(_same, forth, again))
    order = {
        _same(a.flip(dim), b)
        for a, b in zip(forth, back, strict=False)
        for dim in range(a.dim())
        if a.shape[dim] == len(rows) and not _same(a.flip(dim), a)
        # Positions in a joined tensor are values of no row.
        if _parts(a, dim) == _parts(b, dim)
    }
    if order == {False} and not is_random:
        raise InvalidInput(
            "data_loader: its collate_fn puts the rows of a batch in another order than the"
            " sampler, so that losses would be those of other rows; keep the order (sequences are"
            " packed with enforce_sorted=False)."
        )


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, PackedSequence):
        # Sorted by length inside; this restores the order that it was given.
        yield from pad_packed_sequence(batch, batch_first=True)
    elif isinstance(batch, Mapping):
        yield from _tensors(list(batch.values()))
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from _tensors(part)


def _parts(a: torch.Tensor, dim: int) -> list[str]:
    """Return the values of a tensor at each index of a dimension, in a common order."""
    return sorted(str(part.tolist()) for part in a.unbind(dim)) if dim < a.dim() else []


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors are equal; NaN is equal to NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
