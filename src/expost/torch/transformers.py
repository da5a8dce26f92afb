"""Tracking of a Hugging Face ``Trainer`` that trains with Opacus: a callback, and a loss by rows.

Needs the extra ``transformers``.

What a ``Trainer`` needs so that a step is what Opacus' accountant assumes (docs/dp-sgd.md):

- its loader is the private one: override ``get_train_dataloader``;
- its optimizer is the private one: ``optimizers=(optimizer, None)``. The ``Trainer`` wraps it, and
  calls ``model.zero_grad()`` only, which leaves Opacus' sum of a step in place; Opacus then refuses
  the next step. The callback calls the optimizer's own ``zero_grad``;
- its loss is a mean over rows of functions of one row each. The default loss of a language model is
  a mean over the tokens of all rows, so that a row's gradient depends on how long the other rows
  are: use :func:`row_loss`;
- one batch a step (``gradient_accumulation_steps=1``), and no scaler (``fp16=False``).
"""

from pathlib import Path
from typing import Any

import torch

from expost.errors import InvalidInput, require
from expost.profiles.profile import Profile
from expost.torch.tracking import Tracker, track

__all__ = ["TrackingCallback", "row_loss"]

_CALLBACKS: Any = require("transformers", caller="expost.torch.transformers", extra="transformers")
# Labels that no loss counts.
_IGNORED = -100


def row_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    """Return the mean over rows of each row's own mean loss by token (``compute_loss_func``).

    Parameters
    ----------
    outputs : Any
        The outputs of a causal language model, with ``logits`` (rows, tokens, vocabulary).
    labels : Any
        (rows, tokens) the tokens; −100 is not counted. Those of a row are compared with the
        outputs one position before.
    num_items_in_batch : Any, optional
        Not used: it depends on the other rows.

    Returns
    -------
    torch.Tensor
        A scalar. A row without a token to count has loss 0.
    """
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    targets = labels[:, 1:]
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), targets, ignore_index=_IGNORED, reduction="none"
    )
    counted = (targets != _IGNORED).sum(dim=1).clamp(min=1)
    by_row = losses.sum(dim=1) / counted
    # An empty batch has gradients too, all zero.
    return by_row.sum() / max(len(by_row), 1)


class TrackingCallback(_CALLBACKS.TrainerCallback):
    """A callback that tracks every row, or person, of a ``Trainer`` which trains with Opacus.

    Parameters
    ----------
    folder : str | Path, optional
        Where the profile is written at the end of the training, as CURATOR-ONLY files.
    delta : float, default=1e-05
        δ of every guarantee in them.
    ids : Any, optional
        Keys of the rows, for :meth:`Tracker.profile`.
    **options : Any
        Those of :func:`expost.torch.track`: ``row_count``, ``persons``, ``public_batches``, …;
        ``model`` for ghost clipping with ``wrap_model=False``.

    Attributes
    ----------
    tracker : Tracker | None
        The tracker, from the beginning of the training on.
    """

    def __init__(
        self,
        *,
        folder: str | Path | None = None,
        delta: float = 1e-5,
        ids: Any = None,
        **options: Any,
    ) -> None:
        self.tracker: Tracker | None = None
        self._folder = None if folder is None else Path(folder)
        self._delta = delta
        self._ids = ids
        self._options = options

    @property
    def profile(self) -> Profile:
        """The profile of the training so far. Curator-only."""
        if self.tracker is None:
            raise InvalidInput("callback: nothing was trained yet; call trainer.train() first.")
        return self.tracker.profile(self._ids, delta=self._delta)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Attach the tracker to the optimizer and the loader of the ``Trainer``.

        Parameters
        ----------
        args, state, control : Any
            Of the ``Trainer``.
        **kwargs : Any
            Its model, optimizer and loader.

        Raises
        ------
        InvalidInput
            If the ``Trainer`` does not train with Opacus, or not step by step.
        """
        optimizer = unwrapped(kwargs.get("optimizer"))
        _check_arguments(args, optimizer)
        if getattr(state, "global_step", 0):
            raise InvalidInput(
                f"trainer: continues after step {state.global_step} (resume_from_checkpoint), and"
                " the steps before were not tracked, so that nothing can be said of its model;"
                " train from the beginning."
            )
        self.tracker = track(
            optimizer,
            kwargs.get("train_dataloader"),
            **{"model": kwargs.get("model"), **self._options},
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Clear the sum of the step: the ``Trainer`` clears the model's gradients alone.

        Parameters
        ----------
        args, state, control : Any
            Of the ``Trainer``.
        **kwargs : Any
            Its optimizer.
        """
        unwrapped(kwargs.get("optimizer")).zero_grad()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Detach the tracker, and write the profile if there is a folder.

        Parameters
        ----------
        args, state, control : Any
            Of the ``Trainer``.
        **kwargs : Any
            Not used.
        """
        if self.tracker is None:
            return
        self.tracker.detach()
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            profile = self.profile
            table = profile.to_parquet(self._folder / "profile.parquet")
            profile.to_json(self._folder / "profile.json", table=table.name)


def unwrapped(optimizer: Any) -> Any:
    """Return Opacus' optimizer inside of the wrapper that the ``Trainer`` puts around it.

    Parameters
    ----------
    optimizer : Any
        What the callbacks of a ``Trainer`` get.

    Returns
    -------
    Any
        The optimizer of ``make_private``, or what is there instead.
    """
    opacus = require("opacus.optimizers", caller="expost.torch.transformers", extra="torch")
    inner = optimizer
    while inner is not None and not isinstance(inner, opacus.DPOptimizer):
        inner = getattr(inner, "optimizer", None)
    if inner is None:
        raise InvalidInput(
            "trainer: its optimizer is not one of Opacus; pass optimizers=(optimizer, None) with"
            " the optimizer that make_private returned."
        )
    return inner


def _check_arguments(args: Any, optimizer: Any) -> None:
    """Refuse arguments with which a step is not one batch of one process, or its sum is changed."""
    opacus = require("opacus.optimizers", caller="expost.torch.transformers", extra="torch")
    is_ghost = isinstance(optimizer, opacus.DPOptimizerFastGradientClipping)
    if is_ghost and args.max_grad_norm:
        raise InvalidInput(
            f"trainer: max_grad_norm={args.max_grad_norm!r}: it changes the sum of clipped"
            " gradients before ghost clipping adds the noise; use max_grad_norm=0.0, Opacus clips"
            " each row."
        )
    for name, needed, reason in (
        ("gradient_accumulation_steps", 1, "a step must be one batch of the private loader"),
        ("fp16", False, "its scaler skips steps because of the gradients"),
        ("auto_find_batch_size", False, "a training that starts again reveals more than one"),
        ("world_size", 1, "distributed training is not tracked"),
    ):
        value = getattr(args, name, needed)
        if value != needed:
            raise InvalidInput(f"trainer: {name}={value!r}: {reason}; use {name}={needed!r}.")
    if getattr(args, "n_gpu", 0) > 1:
        raise InvalidInput(f"trainer: n_gpu={args.n_gpu}: distributed training is not tracked.")
