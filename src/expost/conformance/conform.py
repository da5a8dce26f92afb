"""``conform``: checks of a private training step against its claims, from what it publishes."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from expost import _checks
from expost.conformance.checks import STEP_CHECKS
from expost.conformance.claims import Claims
from expost.conformance.evidence import Evidence
from expost.conformance.result import Conformance
from expost.conformance.sampling import SAMPLING_CHECKS
from expost.conformance.tasks import Trainer

__all__ = ["conform", "numpy_seeded"]

_CHECKS = (*STEP_CHECKS, *SAMPLING_CHECKS)


def conform(
    trainer: Trainer,
    claims: Claims,
    *,
    false_alarm: float = 1e-3,
    steps: int = 60,
    seeded: Callable[[int], AbstractContextManager[None]] | None = None,
    name: str | None = None,
) -> Conformance:
    """Check a private trainer against its claims, from what it publishes on rows of our own.

    The trainer is run several times on synthetic rows whose gradients are known, with full batches
    and with sampled ones. Nothing else about it is known or needed.

    Parameters
    ----------
    trainer : callable
        A function of a :class:`Task` that yields the parameters, by layer, after each step.
    claims : Claims
        What the trainer claims.
    false_alarm : float, default=0.001
        The largest probability with which a trainer that keeps all claims is reported to violate
        one, divided among the checks.
    steps : int, default=60
        The steps of a run; more steps find smaller faults.
    seeded : callable, optional
        A context in which the global generators of the trainer's library have this seed; None:
        those of Python and NumPy.
    name : str, optional
        The name of the trainer in the result; None: that of the function.

    Returns
    -------
    Conformance
        A verdict on each claim, with its evidence.

    Raises
    ------
    InvalidInput
        If the trainer fails, makes fewer steps than it is asked for, or yields something else.
    """
    level = _checks.probability("false_alarm", false_alarm) / len(_CHECKS)
    evidence = Evidence(
        trainer,
        claims,
        steps=_checks.integer("steps", steps, least=20),
        level=level,
        seeded=numpy_seeded if seeded is None else seeded,
    )
    findings = tuple(check(evidence) for check in _CHECKS)
    return Conformance(
        claims=claims,
        findings=findings,
        false_alarm=false_alarm,
        steps=evidence.observed,
        name=name or str(getattr(trainer, "__name__", "trainer")),
    )


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python and NumPy, and restore them."""
    # A trainer may use the global generator; ours never does.
    before, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 (see above)
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (see above)
        yield
    finally:
        random.setstate(before)
        np.random.set_state(arrays)  # noqa: NPY002 (see above)
