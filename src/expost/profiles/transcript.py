"""The privacy loss of each row from the transcript of a DP-SGD run: its profile, and its own ε.

The transcript's loss and the last model's
------------------------------------------
With ℓ the loss for the transcript and ℓ_T that for the last model alone,

    e^(−ℓ_T) = E[e^(−ℓ) ∣ the last model],   hence   ℓ_T ≤ E[ℓ ∣ the last model]  (Jensen):

over all runs that end in the same model, the transcript's losses are on average at least the
model's own. A single run's ℓ may lie on either side of ℓ_T (docs/dp-sgd.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expost import _checks
from expost.accounting import gaussian_epsilon_below
from expost.errors import InvalidInput
from expost.mechanisms.dpsgd import Adversary, Transcript
from expost.mechanisms.hidden_batches import UNSEEN_FAILS
from expost.numbers import upper_text
from expost.profiles.attackers import Audited, attackers_of
from expost.profiles.profile import Profile
from expost.results import RowTable, row_keys
from expost.risk import Guarantee
from expost.types import Audience, FloatArray, IntArray, Neighbouring

__all__ = ["IndividualEpsilon", "individual_epsilon", "transcript_profile"]

LAST_MODEL = (
    "Losses are those of the transcript: the attacker sees every noisy gradient. If only the last"
    " model is released, they are at least as large on average, but not in every run."
)
KNOWN_BATCHES = (
    "The adversary knows which rows were in which batch, so that sampling does not protect a row."
)
FROZEN_LAW = (
    "Expected exposures and advantages assume that each gradient has the norm it had in this run."
)
NO_LAW = (
    "The loss of a replaced row has no known law if batches are hidden: expected exposures are"
    " those of this run."
)
NO_GUARANTEE = (
    "The noise was scaled to one row's gradient (local sensitivity), which was read from the data:"
    " there is no guarantee."
)


def transcript_profile(
    transcript: Transcript,
    *,
    description: str | None = None,
    ids: Sequence[Any] | None = None,
    notices: Sequence[str] = (),
    delta: float = 1e-5,
    guaranteed: bool = True,
    hidden: Guarantee | None = None,
    count: Guarantee | None = None,
    reported: Callable[[float], float] | None = None,
    owner: IntArray | None = None,
    untracked: int = 0,
    audited: Audited | None = None,
    one_row: Guarantee | None = None,
) -> Profile:
    """Return the profile of a run.

    ``delta`` is that of :meth:`Transcript.row_losses`; ``guaranteed``: the noise has a guarantee.
    ``hidden``, ``count``, ``reported``, ``untracked``, ``audited``, ``one_row``: those of
    :func:`attackers_of`. ``owner``: whose row each row is, where the entries of the transcript are
    persons.
    """
    mechanism, n = transcript.mechanism, transcript.mechanism.rows
    known = transcript.adversary is Adversary.KNOWN_BATCHES
    replaced = mechanism.relation is Neighbouring.REPLACE
    sentences = [LAST_MODEL, NO_LAW if replaced and not known else FROZEN_LAW]
    if known and mechanism.sampling_rate < 1:
        sentences.append(KNOWN_BATCHES)
    elif hidden is None and guaranteed and transcript.steps > 0:
        hidden = transcript.guarantee()
    if np.any(transcript.unseen):
        sentences.append(
            f"At most steps only the batch's gradients were computed: a row's interval fails with"
            f" probability {upper_text(UNSEEN_FAILS)} at most."
        )
    if not guaranteed:
        sentences.append(NO_GUARANTEE)
    return Profile(
        losses=transcript.row_losses(delta=delta, guaranteed=guaranteed),
        description=description or f"{mechanism.describe()}, {transcript.steps} steps, n={n}",
        rows=n if owner is None else len(owner),
        ids=row_keys(ids, n),
        owner=owner,
        notices=(*sentences, *notices),
        attackers=attackers_of(
            transcript,
            delta=delta,
            hidden=hidden,
            guaranteed=guaranteed,
            count=count,
            reported=reported,
            of_persons=owner is not None,
            untracked=untracked,
            one_row=one_row,
            audited=audited,
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IndividualEpsilon(RowTable):
    """Each row's own ε at δ, and the worst case of the run. Curator-only.

    Parameters
    ----------
    epsilon : FloatArray
        (n,) ε(δ) of Gaussian noise at the row's μ = √(Σ∥g∥²)/s, rounded up (Feldman and Zrnic 2021;
        Yu et al. 2022; Koskela et al. 2023 for Gaussian noise).
    worst_case : float
        ε(δ) of the run for any row of any data.
    filtered : bool, default=False
        Whether a filter kept every row to that; else the rows' own figures are an account after the
        fact.
    """

    epsilon: FloatArray
    delta: float
    worst_case: float
    filtered: bool = False

    audience = Audience.CURATOR_ONLY

    def __len__(self) -> int:
        return len(self.epsilon)

    @property
    def meaning(self) -> str:
        """Whether these figures are a guarantee, in one sentence."""
        if self.filtered:
            return (
                f"The filter guarantees that no row of any data spends more than"
                f" {upper_text(self.worst_case, 3)}; what a row did spend is computed after the"
                " fact."
            )
        return (
            "Computed after the fact, not a guarantee: a row's gradients depend on the noise, and"
            " could have been longer."
        )

    def columns(self) -> dict[str, Any]:
        """Return every per-row figure by name."""
        return {"row": np.arange(len(self)), "epsilon": self.epsilon}

    def __repr__(self) -> str:
        return f"IndividualEpsilon({len(self)} rows, delta={self.delta:g})"


def individual_epsilon(transcript: Transcript, delta: float) -> IndividualEpsilon:
    """Return each row's own ε(δ) of a full-batch run, which has its gradient at every step."""
    delta = _checks.probability("delta", delta)
    mechanism = transcript.mechanism
    if mechanism.sampling_rate != 1:
        raise InvalidInput(
            f"sampling_rate={mechanism.sampling_rate!r}: a row's own epsilon needs the length of"
            " its gradient at every step, sampled or not; train with all rows in"
            " every batch: sampling_rate=None, or a DataLoader that does not sample."
        )
    if mechanism.relation is not Neighbouring.REMOVE:
        raise InvalidInput(
            "relation='replace': a row's own epsilon is that of its removal; train with"
            " relation='remove'."
        )
    worst = transcript.guarantee().epsilon(delta)
    # Rounded up: at a slightly larger μ and a slightly smaller δ.
    own = gaussian_epsilon_below(transcript.separation * (1 + 1e-9), delta * (1 - 1e-9))
    return IndividualEpsilon(
        epsilon=np.minimum(own, worst),
        delta=delta,
        worst_case=worst,
        filtered=mechanism.norm_budget is not None,
    )
