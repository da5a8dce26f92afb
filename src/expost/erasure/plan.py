"""What an erasure will do, decided before any coin is tossed: method, laws, charge and bounds.

All of it follows from public constants: the mechanism, the numbers of rows before and after, and
the curator's declaration.
"""

import hashlib
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np

from expost.erasure.coupling import Coupled, couple, total_variation
from expost.errors import InvalidInput, ReleaseRefused
from expost.glm import Objective
from expost.ledger import Entry
from expost.mechanisms.encoded import model_mechanism
from expost.mechanisms.law_pairs import LawPair, Perturbed, can_erase, law_pair
from expost.mechanisms.ratio_error import clamp_probability, ratio_error
from expost.release import Release, Revision
from expost.rows import RowBlock, Rows, rows_at, without
from expost.types import FloatArray, IntArray

__all__ = ["ErasurePlan", "data_digest", "request_digest"]

# The largest error of the law, in total variation, that a certificate states.
_LARGEST_ERROR = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class ErasurePlan:
    """One change of the rows of a released model.

    Attributes
    ----------
    release : Release
        The model before.
    changed : int
        The number of rows that leave or enter.
    is_insertion : bool
        Whether they enter.
    is_fresh : bool
        Whether the model after is drawn independently of the one before.
    requests_independent : bool
        The curator's declaration that the request does not depend on the model before, nor on any
        earlier one or its fate.
    """

    release: Release
    changed: int
    is_insertion: bool = False
    is_fresh: bool = True
    requests_independent: bool = False

    def __post_init__(self) -> None:
        release = self.release
        mechanism = release.mechanism
        if release.has_private_encoding:
            raise ReleaseRefused(
                "model: its encoding was released from the rows too, and holds counts of those that"
                " leave; release both again, without the rows, or with an encoding that is given."
            )
        if not can_erase(mechanism):
            raise ReleaseRefused(
                f"model: was released by {mechanism.kind}, whose erasure is not known to be exact;"
                " train it again without the rows."
            )
        if not mechanism.is_private:
            raise ReleaseRefused(
                "model: was released without noise, so that it is a function of its rows; fit it"
                " again without them."
            )
        if release.seeded:
            raise ReleaseRefused(
                "model: was made with a seed (random_state), which reveals its noise; release it"
                " without one."
            )
        if self.changed < 1:
            raise InvalidInput("remove: names no row; name those that leave.")
        if not self.is_fresh and not self.requests_independent:
            raise InvalidInput(
                "fresh=False: a model is kept only if the requests do not depend on it; declare"
                " that with requests_independent=True (--requests-independent), or redraw it with"
                " fresh=True."
            )
        if self.rows_after < 2:
            raise InvalidInput("remove: must leave at least 2 rows.")

    @property
    def before(self) -> Perturbed:
        """The mechanism of the model before."""
        return cast(Perturbed, model_mechanism(self.release.mechanism))

    @property
    def rows_after(self) -> int:
        """The number of rows of the model after."""
        rows = self.release.mechanism.rows
        return rows + self.changed if self.is_insertion else rows - self.changed

    @cached_property
    def after(self) -> Perturbed:
        """The mechanism of the model after: the same noise, Λ and grid."""
        return self.before.with_rows(self.rows_after)

    @property
    def method(self) -> str:
        """The name of the method."""
        return "fresh" if self.is_fresh else "coupled"

    @property
    def advantage(self) -> float:
        """A bound on T, the total variation between the laws before and after."""
        larger = self.after if self.is_insertion else self.before
        return larger.advantage_of(self.changed)

    @property
    def mean_keeping(self) -> float:
        """A lower bound on the probability with which the model before is kept, over releases."""
        if self.is_fresh:
            return 0.0
        passed = self.advantage + self._width + clamp_probability(self.before)
        return max(1 - passed * (1 + 1e-12), 0.0)

    @property
    def least_keeping(self) -> float:
        """A lower bound on it for every release that is not on the clamp of the grid.

        0 where losses are not bounded.
        """
        larger = self.after if self.is_insertion else self.before
        worst, passed = larger.worst_case_of(self.changed)
        if self.is_fresh or passed > 0:
            return 0.0
        return math.exp(-worst - self._width) * (1 - 1e-12)

    @property
    def _width(self) -> float:
        """A bound on the width of the intervals of ℓ."""
        return 2 * ratio_error(self.before, self.after)

    def objectives(self, all_rows: Objective, numbers: IntArray) -> tuple[Objective, Objective]:
        """Return J over the present rows and over those after the change.

        Parameters
        ----------
        all_rows : Objective
            J over the rows that stay and those that leave or enter.
        numbers : IntArray
            The numbers of the rows that leave or enter, ascending.

        Returns
        -------
        tuple[Objective, Objective]
            The two objectives, with the penalties of their numbers of rows.
        """
        fewer = replace(all_rows, rows=without(all_rows.rows, numbers))
        both = (fewer, all_rows) if self.is_insertion else (all_rows, fewer)
        pairs = zip(both, (self.before, self.after), strict=True)
        present, changed = (
            replace(part, penalty=np.full(part.dimension, mechanism.total_regularization))
            for part, mechanism in pairs
        )
        return present, changed

    def check_rows(self, present: Objective) -> None:
        """Refuse rows that cannot have made the model before.

        Parameters
        ----------
        present : Objective
            J over the rows before the change.

        Raises
        ------
        WrongRows
            If their number is another, or the noise that they imply is implausible.
        """
        self.before.check(present, self.release.theta)

    def pair(self, all_rows: Objective, numbers: IntArray) -> LawPair:
        """Return the laws before and after.

        Parameters
        ----------
        all_rows : Objective
            J over the rows that stay and those that leave or enter.
        numbers : IntArray
            The numbers of the rows that leave or enter, ascending.

        Returns
        -------
        LawPair
            P and Q.

        Raises
        ------
        ReleaseRefused
            If public constants do not bound the error of the law.
        """
        pair = self._pair(all_rows, numbers)
        self._check_coupling(pair)
        return pair

    def _pair(self, all_rows: Objective, numbers: IntArray) -> LawPair:
        present, changed = self.objectives(all_rows, numbers)
        rows = rows_at(all_rows.rows, numbers)
        return law_pair(self.before, self.after, present, changed, rows)

    def errors(self, pair: LawPair | None) -> tuple[float, float]:
        """Return (τ, r): the law after is within τ of the exact one for a model moved by r at most.

        Parameters
        ----------
        pair : LawPair or None
            P and Q of a coupling; None for a fresh redraw, which is a release itself.

        Returns
        -------
        tuple[float, float]
            A bound in total variation, and a distance.
        """
        if pair is None:
            return 0.0, 0.0
        models = self._coupled
        steps = pairwise(models)
        total = sum(total_variation(before, after) for before, after in steps)
        return min(total * (1 + 1e-12), 1.0), pair.distance

    @property
    def _coupled(self) -> list[Perturbed]:
        """The mechanism with the numbers of rows of all models that are coupled, the new one too.

        The law of the model before is itself known to the bounds of the steps that led to it.
        """
        rows = (*self.release.coupled_rows, self.rows_after)
        return [self.before.with_rows(count) for count in rows]

    def _check_coupling(self, pair: LawPair) -> None:
        """Refuse a coupling whose error public constants do not bound well."""
        most, *_ = sorted((model.rows for model in self._coupled), reverse=True)
        if most > max(self.before.first.rows, self.release.mechanism.rows, self.rows_after):
            raise ReleaseRefused(
                "fresh=False: the model may have been computed from more rows than it has now, and"
                " to another precision; redraw with fresh=True."
            )
        error, _ = self.errors(pair)
        if not error <= _LARGEST_ERROR:
            raise ReleaseRefused(
                f"fresh=False: public constants bound the error of the law by {error:.3g} only,"
                f" where {_LARGEST_ERROR:g} is allowed; redraw with fresh=True, or change fewer"
                " rows at once."
            )

    def drawn(
        self,
        all_rows: Objective,
        numbers: IntArray,
        pair: LawPair | None,
        *,
        coin: float | None = None,
        rng: np.random.Generator | None = None,
    ) -> Coupled:
        """Draw the model after.

        Parameters
        ----------
        all_rows : Objective
            J over the rows that stay and those that leave or enter.
        numbers : IntArray
            The numbers of the rows that leave or enter, ascending.
        pair : LawPair or None
            P and Q of a coupling; None for a fresh redraw.
        coin : float, optional
            The coin of a coupling, tossed before.
        rng : np.random.Generator, optional
            For simulation and tests; None: the operating system's randomness.

        Returns
        -------
        Coupled
            The model after.
        """
        if pair is None:
            _, changed = self.objectives(all_rows, numbers)
            theta = self.after.release(changed, rng)
            return Coupled(theta=theta, is_kept=False, ratio=None, tries=1)
        return couple(pair, self.release.theta, self.before.grid, coin=coin, rng=rng)

    def release_of(self, theta: FloatArray, request: str) -> Release:
        """Return the model after, with its history.

        Parameters
        ----------
        theta : FloatArray
            Its coefficients on the grid.
        request : str
            The keyed hash of the request.

        Returns
        -------
        Release
            The model.
        """
        step = Revision(
            model=self.release.to_json()["sha256"],
            rows=self.release.mechanism.rows,
            method=self.method,
            request=request,
        )
        return replace(
            self.release,
            theta=theta,
            mechanism=self.after,
            history=(*self.release.history, step),
        )

    def entry(self, request: str, *, name: str, made: str, data: str | None) -> Entry:
        """Return the line of a ledger, which is written before the coin is tossed.

        Parameters
        ----------
        request : str
            The keyed hash of the request.
        name : str
            The file of the model after.
        made : str
            The time.
        data : str | None
            The salted digest of the rows after.

        Returns
        -------
        Entry
            The line; it charges what is proved about the models together.
        """
        # θ is not part of the line.
        model = self.release_of(self.release.theta, request)
        *_, entry = model.entries({"sha256": request}, name=name, made=made, data=data)
        return entry


def request_digest(key: str, model: str, names: Sequence[Any]) -> str:
    """Return the keyed hash of a request: which rows of which model leave or enter.

    Parameters
    ----------
    key : str
        The key of the curator, in hexadecimal digits: the salt of the ledger.
    model : str
        The checksum of the model before.
    names : Sequence[Any]
        The names (or numbers) of the rows or persons, in any order.

    Returns
    -------
    str
        HMAC-SHA256 in hexadecimal digits.
    """
    parts = sorted({f"{type(name).__name__}:{name}" for name in names})
    lengths = [part.encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in lengths)
    return _keyed(key, b"expost-request/1", bytes.fromhex(model) + message)


def data_digest(key: str, rows: Rows) -> str:
    """Return the keyed hash of the rows after the change, for the certificate.

    One digest of every row, in their order: the same whether rows were left out of a pass or are
    not in the table.

    Parameters
    ----------
    key : str
        The key of the curator, in hexadecimal digits: the salt of the ledger.
    rows : Rows
        The rows as the model's encoding reads them.

    Returns
    -------
    str
        HMAC-SHA256 in hexadecimal digits.
    """
    total = hashlib.sha256()
    for digests in rows.map(_row_digests):
        total.update(digests)
    return _keyed(key, b"expost-erased-data/1", total.digest())


def _row_digests(block: RowBlock) -> bytes:
    """Return the digests of the rows of a block, one after the other."""
    # Adding 0 turns −0 into 0.
    rows = np.ascontiguousarray(np.column_stack([block.X, block.y]), dtype="<f8") + 0.0
    return b"".join(hashlib.blake2b(row.data, digest_size=32).digest() for row in rows)


def _keyed(key: str, purpose: bytes, message: bytes) -> str:
    return hmac.new(bytes.fromhex(key), purpose + b"\0" + message, hashlib.sha256).hexdigest()
