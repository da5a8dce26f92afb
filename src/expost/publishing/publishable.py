"""What a published report may be made of, and what it answers with."""

from dataclasses import dataclass
from typing import Any

from scipy.special import expit

from expost.data import Encoding
from expost.errors import ReleaseRefused
from expost.release import Release
from expost.results import Displayed
from expost.types import Audience

__all__ = ["Answer", "Spending", "check_publishable"]

# So many of the constants that were read from the data are named; the rest are counted.
_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What the model and its report spend, each as (ε, δ); infinite where nothing is promised.

    ``sequential``  all of it by plain addition.
    ``together``    the same with the gradient and the Hessian composed exactly first.
    """

    model: tuple[float, float]
    gradient: tuple[float, float] | None
    hessian: tuple[float, float] | None
    sequential: tuple[float, float]
    together: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Answer(Displayed):
    """What a report tells one person about her own row, with one label.

    ``exposure``          at most, in nats: of θ alone, whether or not she is in the data.
    ``epsilon_gradient``, ``epsilon_hessian``  what the report's own releases cost her, at ``delta``
                          each; 0 in a data-independent report.
    ``everything``        at most, in nats: of θ and the report's releases together.
    ``fails_with``, ``everything_fails_with``  how probable it is that those bounds are wrong.
    ``notes``             what was done with the values: clipped, missing, unknown.
    ``audience``          that of the report: nothing but that and her own row went into it.
    """

    label: Any
    exposure: float
    epsilon_gradient: float
    epsilon_hessian: float
    delta: float
    everything: float
    fails_with: float
    everything_fails_with: float
    notes: tuple[str, ...] = ()
    audience: Audience = Audience.PASS

    @property
    def belief(self) -> float:
        """How sure an attacker can be at most, in or out, who was undecided before seeing θ."""
        return float(expit(self.exposure))

    @property
    def belief_in_everything(self) -> float:
        """The same of an attacker who saw θ and the report."""
        return float(expit(self.everything))


def check_publishable(release: Release) -> None:
    """Refuse a model of which a published report would give away more than the model does."""
    read = list(release.read_from_data)
    if release.encoding is not None:
        read += Encoding.from_json(release.encoding).read_from_data
    if read:
        read = list(dict.fromkeys(read))
        more = f" and {len(read) - _NAMED} more" if len(read) > _NAMED else ""
        raise ReleaseRefused(
            f"the model holds what was read from its rows ({', '.join(read[:_NAMED])}{more}), which"
            " a published report would give away; give bounds, levels and labels that are known"
            " without the data, and fit again."
        )
    if not release.mechanism.is_private:
        raise ReleaseRefused(
            "epsilon=inf: the model carries no noise, so that no exposure is bounded; fit one with"
            " a finite epsilon."
        )
    if release.seeded:
        raise ReleaseRefused(
            "random_state: the model's noise came from a seed, and no bound holds against whoever"
            " knows it; fit one without a random_state."
        )
    if release.mechanism.grid.is_clamped(release.theta):
        raise ReleaseRefused(
            "theta: lies on the clamp of its grid, which happens once in 1e12 releases and leaves"
            " its cell unbounded; no bound can be published of this model."
        )
