"""What a training gives back: the model, and what its transcript says of each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import expit

from expost.errors import InvalidInput
from expost.mechanisms.dpsgd import SGDMechanism, Transcript
from expost.profiles.profile import Profile
from expost.profiles.transcript import IndividualEpsilon, individual_epsilon, transcript_profile
from expost.results import Displayed
from expost.risk import Guarantee
from expost.types import Audience, FloatArray

__all__ = ["Training"]

SIMULATION = (
    "A simulation: the noise came from a seed, and whoever knows the seed can take it off again."
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Training(Displayed):
    """One run of DP-SGD. For the curator only, but for ``module``, which is what is released.

    ``module``         the trained copy of the module that was passed.
    ``transcript``     the sums over the steps, one entry a row.
    ``every``          at which steps gradients of rows outside the batch were computed.
    ``is_local``       whether the noise was scaled to one row's gradient: nothing is promised.
    ``is_simulation``  whether the noise came from a seed.
    """

    module: torch.nn.Module
    transcript: Transcript
    learning_rate: float
    divisor: float
    every: int = 1
    is_local: bool = False
    is_simulation: bool = False

    audience = Audience.FAIL

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
        """How many there were."""
        return self.transcript.steps

    @property
    def losses(self) -> FloatArray:
        """(n,) log p(transcript ∣ D) − log p(transcript ∣ D without, or with another, row)."""
        return self.transcript.loss.copy()

    @property
    def beliefs(self) -> FloatArray:
        """(epochs, n) sigmoid(loss so far): an undecided adversary's belief after each epoch."""
        return expit(self.transcript.epochs.astype("float64"))

    @property
    def guarantee(self) -> Guarantee | None:
        """What the run promises for any row of any data where batches hide the rows.

        None under local sensitivity. The profile's worst case is that against its own adversary.
        """
        return None if self.is_local else self.mechanism.guarantee(self.steps)

    def profile(self, ids: Sequence[Any] | None = None, *, delta: float = 1e-5) -> Profile:
        """How much the transcript gives each row away.

        ``delta``: with which probability at most the worst case is passed.
        """
        return transcript_profile(
            self.transcript,
            ids=ids,
            delta=delta,
            promised=not self.is_local,
            notices=(SIMULATION,) if self.is_simulation else (),
        )

    def individual_epsilon(self, delta: float) -> IndividualEpsilon:
        """Each row's own ε(δ) beside the worst case of the run (full batch only).

        Without a ``norm_budget`` it is an account after the fact, not a promise.
        """
        if self.is_local:
            raise InvalidInput(
                "sensitivity='local': the noise depends on the data and promises no epsilon; train"
                " with sensitivity='global'."
            )
        return individual_epsilon(self.transcript, delta)

    def __repr__(self) -> str:
        seeded = ", a simulation" if self.is_simulation else ""
        return (
            f"Training({self.mechanism.describe()}, {self.steps} steps,"
            f" n={self.mechanism.rows}{seeded})"
        )
