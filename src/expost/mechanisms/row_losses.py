"""The result of every mechanism: one loss a row, its interval, and its law."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from expost.neighbouring.influence import Influence, OwnPredictors
from expost.neighbouring.neighbours import Neighbours
from expost.noise import LossLaw, Noise
from expost.results import Displayed
from expost.risk import Guarantee
from expost.types import Audience, FloatArray, Neighbouring

__all__ = ["RowLosses", "controlled_exposures", "finite_only", "mean_exposures"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowLosses(Displayed):
    """The privacy losses of all rows, from which every view is made.

    Attributes
    ----------
    loss : FloatArray
        (n,) log p(θ ∣ D) − log p(θ ∣ D') in nats, signed so that > 0 is evidence that the row was
        in the data.
    low, high : FloatArray
        (n,) the interval that the certificate proves for it.
    distance : FloatArray
        (n,) how far the row moves what the noise is added to: the minimiser, or, under objective
        perturbation, the gradient at θ.
    distance_error : FloatArray
        (n,) a bound on the error of ``distance``.
    relation : Neighbouring
        How the neighbouring data sets differ.
    law : LossLaw | None
        The loss's law over θ, or None where there is no noise or no closed form.
    worst_case : float
        The guaranteed exposure in nats.
    worst_case_passed : float, default=0.0
        A bound on the probability with which an exposure exceeds ``worst_case``.
    noiseless : bool
        Whether there is no noise, so that rows differ only in their distances.
    sampled : Callable[[], tuple[FloatArray, FloatArray]] | None
        E∣loss∣ and its standard error from sampled releases, where there is noise and no closed
        form; drawn when it is called.
    draw : Callable[[int, np.random.Generator], Iterator[FloatArray]] | None
        ``draw(m, rng)`` yields the losses (n,) of all rows in m releases θ ~ p(· ∣ D), one release
        after the other, where there is no closed form; infinite in a release that would have been
        refused.
    guarantee : Guarantee | None
        The mechanism's guarantee for these neighbours, or None.
    far_law : LossLaw | None
        The same at distance + distance_error, where there is a law.
    neighbours : Neighbours | None
        The leave-one-out minimisers of rows in memory, where losses follow from them.
    predictors : OwnPredictors | None
        What the model predicts for each row, and without it, where there is no noise.
    influence : Influence | None
        What they and the distances follow from.
    """

    loss: FloatArray
    low: FloatArray
    high: FloatArray
    distance: FloatArray
    distance_error: FloatArray
    relation: Neighbouring
    law: LossLaw | None
    worst_case: float
    worst_case_passed: float = 0.0
    noiseless: bool = False
    sampled: Callable[[], tuple[FloatArray, FloatArray]] | None = None
    draw: Callable[[int, np.random.Generator], Iterator[FloatArray]] | None = None
    guarantee: Guarantee | None = None
    far_law: LossLaw | None = None
    neighbours: Neighbours | None = None
    predictors: OwnPredictors | None = None
    influence: Influence | None = None

    audience = Audience.CURATOR_ONLY

    @classmethod
    def without_noise(
        cls, distance: FloatArray, distance_error: FloatArray, relation: Neighbouring
    ) -> "RowLosses":
        """Return the losses without noise: infinite, unknown ones included.

        Below 0 for ADD: a row that would have been added is proved to be absent.

        Parameters
        ----------
        distance : FloatArray
            (n,) how far the row moves the minimiser.
        distance_error : FloatArray
            (n,) a bound on its error.
        relation : Neighbouring
            How the neighbouring data set differs.

        Returns
        -------
        RowLosses
            The losses; rows differ in their distances only.
        """
        # Two centres that may coincide could lose nothing; not known, so not called private.
        same = (distance == 0) & (distance_error == 0)
        most = np.where(same, 0.0, np.inf)
        least = np.where(distance > distance_error, np.inf, 0.0)
        absent = relation is Neighbouring.ADD
        return cls(
            loss=0.0 - most if absent else most,
            low=0.0 - most if absent else least,
            high=0.0 - least if absent else most,
            distance=distance,
            distance_error=distance_error,
            relation=relation,
            law=None,
            worst_case=float("inf"),
            noiseless=True,
        )

    @classmethod
    def of_influence(
        cls, influence: Influence, near: Neighbours, predictors: OwnPredictors
    ) -> "RowLosses":
        """Return the losses of a model without noise, whose rows leave one at a time.

        Parameters
        ----------
        influence : Influence
            What the shifts and the predictions follow from.
        near : Neighbours
            The leave-one-out minimisers of the rows.
        predictors : OwnPredictors
            What the model predicts for each row, and without it.

        Returns
        -------
        RowLosses
            The losses, which are infinite.
        """
        losses = cls.without_noise(near.distance, near.error_bound, near.relation)
        return replace(losses, neighbours=near, predictors=predictors, influence=influence)


def mean_exposures(losses: Iterable[FloatArray], rows: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of ∣loss∣ over releases, each of so many rows, and its standard error.

    Infinite for fewer than two releases.
    """
    return _mean_and_error((np.abs(loss) for loss in losses), rows)


def controlled_exposures(
    sampled: Iterable[tuple[FloatArray, FloatArray, FloatArray]], noise: Noise, rows: int
) -> tuple[FloatArray, FloatArray]:
    """Return E∣loss∣ over releases and its standard error, by a control variate.

    E∣ℓ∣ = E∣c∣ + E(∣ℓ∣ − ∣c∣): the first is known from the law of the noise, and the second varies
    little where θ moves the rows' gradients little.

    Parameters
    ----------
    sampled : Iterable[tuple[FloatArray, FloatArray, FloatArray]]
        Of each release the losses ℓ, the losses c of ``noise`` for shifts that do not depend on the
        release, and the lengths of these shifts.
    """
    distance = np.zeros(rows)

    def differences() -> Iterator[FloatArray]:
        nonlocal distance
        for loss, control, distance in sampled:  # noqa: B007 (read below)
            yield np.abs(loss) - np.abs(control)

    mean, error = _mean_and_error(differences(), rows)
    known = noise.law(distance).expected_exposure
    return np.maximum(known + mean, 0.0), error


def _mean_and_error(values: Iterable[FloatArray], rows: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of arrays (rows,) and its standard error; infinite for fewer than two."""
    count, total, squares = 0, np.zeros(rows), np.zeros(rows)
    for value in values:
        count, total, squares = count + 1, total + value, squares + value**2
    if count < 2:
        return np.full(rows, np.inf), np.full(rows, np.inf)
    mean = total / count
    variance = np.maximum(squares / count - mean**2, 0.0)
    return mean, np.sqrt(variance / (count - 1))


def finite_only(losses: Iterable[FloatArray]) -> Iterator[FloatArray]:
    """Leave out releases that would have been refused: their losses are not finite."""
    return (loss for loss in losses if np.all(np.isfinite(loss)))
