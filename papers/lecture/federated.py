"""Federated rounds, simulated: who watches them, and who meddles with them.

Conventions
-----------
K participants hold rows of their own. In each round the server sends θ to all of them, each makes
some epochs of gradient descent on its rows from there and uploads what it came to, and the server
merges: the mean of the uploads, weighted by the numbers of rows (FedAvg, McMahan et al. 2017). One
epoch of one batch is FedSGD: the mean of models is then a step along the mean of gradients.

pool     n rows in question. Nothing here says who has them; φ is their confidence (``Evidence``).

Observers (Nasr, Shokri and Houmansadr 2019)
--------------------------------------------
participant   sees what is sent in each round: the merged models.
server        sees every upload, and so asks of one participant at a time.
passive       only looks: φ at several snapshots (:mod:`papers.lecture.snapshots`), how φ has risen
              since some round, or, of single gradient steps, the upload's inner product with each
              row's gradient (:mod:`expost.auditing.attacks.gradients`, Eq. 2).
active        raises the loss of the rows in question by gradient ascent, θ + γ·∇(their mean loss),
              and watches whether it comes back. A participant who has the row takes it down again
              with every local step; of a row that no participant has, only what it shares with
              others is restored. The server adds it to what it sends. An attacking participant
              adds it to its upload, divided by its share of the mean, so that the merged model
              goes up by γ∇ for every K; the others restore it in the next round, in which the
              attacker only watches.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.func import functional_call

from expost import _checks
from expost.auditing.attacks.gradients import gradient_ratio
from expost.auditing.evidence import Confidences, Flags
from expost.errors import ConvergenceError, InvalidInput
from expost.torch.attacks import ModuleGradients, fresh_copy, log_odds
from expost.torch.gradients import RowGradients
from expost.torch.training import as_tensors
from expost.types import Audience, FloatArray
from papers.common.drawn import Drawn
from papers.common.figures import Display
from papers.lecture import displays
from papers.lecture.snapshots import Snapshots

__all__ = ["Ascent", "FederatedGame", "FederatedRun", "federated_game", "federated_rounds"]

Loss = Callable[[Any, Any], torch.Tensor]
Rows = tuple[torch.Tensor, torch.Tensor]
ROLES = ("server", "participant")


@dataclass(frozen=True, kw_only=True)
class Ascent:
    """An active attacker: ``rate`` γ, from ``first_round`` (counted from 1) on.

    ``by``  "server", in every round; "participant", in every other.
    """

    rate: float
    first_round: int = 1
    by: str = "server"

    def __post_init__(self) -> None:
        _checks.positive("rate", self.rate)
        _checks.integer("first_round", self.first_round, least=1)
        _checks.one_of("by", self.by, ROLES)

    def attacks(self, number: int) -> bool:
        """Return whether the loss is raised in this round."""
        every = 1 if self.by == "server" else 2
        return number >= self.first_round and (number - self.first_round) % every == 0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FederatedRun(Drawn):
    """What was to be seen of one training; rounds are counted from 1, and 0 is before the first.

    ``merged``      (rounds + 1, n) φ of the pool under the merged models.
    ``uploads``     (K, rounds, n) φ under each upload.
    ``population``  (rounds + 1, k) φ of the population under the merged models, and
                    ``population_uploads`` (K, rounds, k).
    ``ratios``      (K, rounds, n) Eq. 2 for each upload, or (K, 0, n) where not asked for.
    ``module``      the merged module at the end.
    """

    merged: Confidences
    uploads: Confidences
    population: Confidences
    population_uploads: Confidences
    ratios: FloatArray
    module: torch.nn.Module
    ascent: Ascent | None = None

    audience = Audience.CURATOR_ONLY

    def display(self) -> Display:
        """Return confidences of the pool and the population under the model of each round."""
        return displays.federated_run(self)

    @property
    def rounds(self) -> int:
        """How many there were."""
        return len(self.merged) - 1

    def snapshots(self, participant: int | None = None) -> Snapshots:
        """Every round as a snapshot: of the merged model, or of one participant's uploads."""
        epochs = np.arange(1, self.rounds + 1)
        if participant is None:
            return Snapshots(
                epochs=epochs, confidence=self.merged[1:], population=self.population[1:]
            )
        k = self._number(participant)
        return Snapshots(
            epochs=epochs, confidence=self.uploads[k], population=self.population_uploads[k]
        )

    def rise(self, since: int, participant: int | None = None) -> FloatArray:
        """Return the mean φ of rounds ``since``, …, less φ before them, (n,).

        For an active attacker whose first round is ``since``: how far the loss came back. The φ
        that a row has in any case cancels.
        """
        first = _checks.integer("since", since, least=1)
        if not first <= self.rounds:
            raise InvalidInput(f"since={since}: must be at most {self.rounds}, the last round.")
        rounds = np.arange(first, self.rounds + 1)
        if participant is not None:
            watched_phi = self.uploads[self._number(participant), rounds - 1]
        else:
            watched = [number for number in rounds if not self._just_raised(int(number))]
            if not watched:
                raise InvalidInput(f"since={since}: no round is left to watch after an ascent.")
            watched_phi = self.merged[watched]
        rise: FloatArray = watched_phi.mean(axis=0, dtype=np.float64) - self.merged[first - 1]
        return rise

    def _just_raised(self, number: int) -> bool:
        """Return whether the merged model was not trained since a participant has raised it."""
        by_participant = self.ascent is not None and self.ascent.by == "participant"
        return by_participant and self.ascent is not None and self.ascent.attacks(number)

    def update_ratio(self, participant: int) -> FloatArray:
        """(n,) the sum over rounds of Eq. 2 for a participant's uploads; for FedSGD alone."""
        if not self.ratios.shape[1]:
            raise InvalidInput("updates=False: pass updates=True to the training to have them.")
        ratios: FloatArray = self.ratios[self._number(participant)].sum(axis=0)
        return ratios

    def _number(self, participant: int) -> int:
        k = _checks.integer("participant", participant, least=0)
        if not k < len(self.uploads):
            raise InvalidInput(
                f"participant={participant}: must be at most {len(self.uploads) - 1}."
            )
        return k

    def __repr__(self) -> str:
        n = self.merged.shape[1]
        server = "passive" if self.ascent is None else f"active {self.ascent.by}"
        return (
            f"FederatedRun({len(self.uploads)} participants, {self.rounds} rounds, {n} rows,"
            f" {server})"
        )


def federated_rounds(
    module: torch.nn.Module,
    participants: Sequence[tuple[Any, Any]],
    pool: tuple[Any, Any],
    *,
    rounds: int,
    learning_rate: float,
    local_epochs: int = 1,
    batch_size: int | None = None,
    population: tuple[Any, Any] | None = None,
    ascent: Ascent | None = None,
    updates: bool = False,
    loss: Loss = torch.nn.functional.cross_entropy,
    fresh: bool = True,
    random_state: int | None = None,
) -> FederatedRun:
    """Train a copy of ``module`` by federated averaging, and keep what can be seen of the pool.

    ``participants``  (X, y) of each.
    ``pool``          (X, y) in question: of the participants, and of none of them.
    ``batch_size``    of local steps; None for all rows of the participant.
    ``population``    (X, y) that no participant has, to compare with.
    ``ascent``        an active attacker, or None.
    ``updates``       whether uploads are compared with the gradients of the pool's rows, which
                      needs a population and single gradient steps (FedSGD).
    ``loss``          of (outputs, targets), the mean over a batch.
    ``fresh``         whether first parameters are drawn again.
    ``random_state``  runs with the same one have the same first parameters and the same batches,
                      attacked or not.

    For experiments: nothing of it is private, and results are about single rows.
    """
    entropy = _entropy(random_state)
    if not isinstance(module, torch.nn.Module):
        raise InvalidInput(f"module: is a {type(module).__name__}; pass a torch.nn.Module.")
    if not participants:
        raise InvalidInput("participants: must be at least one pair (X, y).")
    if updates and (population is None or local_epochs != 1 or batch_size is not None):
        raise InvalidInput(
            "updates=True: needs a population, local_epochs=1 and batch_size=None (FedSGD), for an"
            " upload is a sum of gradients only then."
        )
    module = fresh_copy(module, _rng(entropy)) if fresh else copy.deepcopy(module)
    run = _Simulation(
        gradients=RowGradients(module, loss, np.inf),
        module=module,
        loss=loss,
        participants=[as_tensors(module, X, y, "participants") for X, y in participants],
        pool=as_tensors(module, *pool, "pool"),
        population=None if population is None else as_tensors(module, *population, "population"),
        rate=_checks.positive("learning_rate", learning_rate),
        epochs=_checks.integer("local_epochs", local_epochs, least=1),
        batch=None if batch_size is None else _checks.integer("batch_size", batch_size, least=1),
        ascent=ascent,
        updates=updates,
        entropy=entropy,
    )
    return run.run(_checks.integer("rounds", rounds, least=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Simulation:
    gradients: RowGradients
    module: torch.nn.Module
    loss: Loss
    participants: list[Rows]
    pool: Rows
    population: Rows | None
    rate: float
    epochs: int
    batch: int | None
    ascent: Ascent | None
    updates: bool
    entropy: int

    def run(self, rounds: int) -> FederatedRun:
        theta = self.gradients.start.clone()
        merged, uploads, ratios = [self._answers(theta)], [], []
        weights = torch.tensor([float(len(X)) for X, _ in self.participants], dtype=theta.dtype)
        for number in range(1, rounds + 1):
            sent = theta + self._ascent(theta, number, "server")
            thetas = [self._local(sent, k, number) for k in range(len(self.participants))]
            if self.updates:
                ratios.append([self._ratio(sent, theta_k, k) for k, theta_k in enumerate(thetas)])
            uploads.append([self._answers(theta_k) for theta_k in thetas])
            theta = torch.einsum("k,kd->d", weights / weights.sum(), torch.stack(thetas))
            theta = theta + self._ascent(sent, number, "participant")
            if not bool(torch.isfinite(theta).all()):
                raise ConvergenceError(
                    f"learning_rate={self.rate!r}: parameters are no longer finite after {number}"
                    " rounds; lower it, or the rate of the ascent."
                )
            merged.append(self._answers(theta))
        return self._result(np.array(merged), np.array(uploads), ratios, theta)

    def _result(
        self, merged: Confidences, uploads: Confidences, ratios: list[Any], theta: torch.Tensor
    ) -> FederatedRun:
        n, uploads = len(self.pool[0]), uploads.swapaxes(0, 1)
        with torch.no_grad():
            for name, value in self.gradients.named(theta).items():
                self.module.get_parameter(name).copy_(value)
        kept = np.array(ratios) if ratios else np.zeros((0, len(self.participants), n))
        return FederatedRun(
            merged=merged[:, :n],
            uploads=uploads[:, :, :n],
            population=merged[:, n:],
            population_uploads=uploads[:, :, n:],
            ratios=kept.swapaxes(0, 1),
            module=self.module,
            ascent=self.ascent,
        )

    def _answers(self, theta: torch.Tensor) -> Confidences:
        """φ of the pool, then of the population."""
        parts = [self.pool] if self.population is None else [self.pool, self.population]
        with torch.no_grad():
            answers = [log_odds(self._outputs(theta, X), y) for X, y in parts]
        return np.concatenate(answers)

    def _outputs(self, theta: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = functional_call(self.module, self.gradients.named(theta), (X,))
        return outputs

    def _slope(self, theta: torch.Tensor, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return ∇ of the mean loss."""
        here = theta.detach().requires_grad_()
        slope: torch.Tensor = torch.autograd.grad(self.loss(self._outputs(here, X), y), here)[0]
        return slope

    def _ascent(self, theta: torch.Tensor, number: int, by: str) -> torch.Tensor:
        """γ·∇(mean loss of the pool), or 0 where this one does not attack."""
        ascent = self.ascent
        if ascent is None or ascent.by != by or not ascent.attacks(number):
            return torch.zeros_like(theta)
        return ascent.rate * self._slope(theta, *self.pool)

    def _local(self, theta: torch.Tensor, k: int, number: int) -> torch.Tensor:
        """Return the parameters of participant k, by batches in an order of its own."""
        X, y = self.participants[k]
        rng = _rng(self.entropy, number, k)
        for _ in range(self.epochs):
            if self.batch is None:
                theta = theta - self.rate * self._slope(theta, X, y)
                continue
            for rows in torch.from_numpy(rng.permutation(len(X))).split(self.batch):
                theta = theta - self.rate * self._slope(theta, X[rows], y[rows])
        return theta

    def _ratio(self, sent: torch.Tensor, upload: torch.Tensor, k: int) -> FloatArray:
        """Eq. 2: the upload is one step, so that its members' gradients sum to n·(θ − upload)/α."""
        assert self.population is not None
        members = len(self.participants[k][0])
        total = members * (sent - upload).double() / self.rate
        rows, outside = (
            ModuleGradients(self.gradients, X, y, theta=sent)
            for X, y in (self.pool, self.population)
        )
        return gradient_ratio(rows, outside, members=members, total=total.cpu().numpy())


@dataclass(frozen=True, kw_only=True, eq=False)
class FederatedGame(Drawn):
    """Several trainings of one game: the target's snapshots beside those of references.

    ``truth``      (n,) whether some participant of the target had the row.
    ``owner``      (n,) which one; −1 for none.
    ``snapshots``  with references; ``target`` the run itself.
    """

    truth: Flags
    owner: Any
    snapshots: Snapshots
    target: FederatedRun

    audience = Audience.CURATOR_ONLY

    def display(self) -> Display:
        """Return confidences of members and of the others under the model of each round."""
        return displays.federated_game(self)


def federated_game(
    module: torch.nn.Module,
    X: Any,
    y: Any,
    *,
    participants: int,
    references: int = 0,
    random_state: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> FederatedGame:
    """Deal half of the rows to participants, train, and train ``references`` like it.

    A fair share of all rows, chosen at random, is the target's; the participants get equal numbers
    of them. References are trained alike, each row being in half of them, so that
    :func:`~papers.lecture.snapshots.ratio_score` has models with and without each row.
    ``options`` go to :func:`federated_rounds`; an attacker attacks the target and the references,
    as in a simulation of the attack.
    """
    count = _checks.integer("participants", participants, least=1)
    models = _checks.integer("references", references, least=0)
    if models % 2:
        raise InvalidInput(
            f"references={references}: must be even, each row being in half of them."
        )
    rows, labels = np.asarray(X), np.asarray(y)
    n = len(rows)
    if labels.shape != (n,) or not n >= 2 * count:
        raise InvalidInput(f"X, y: must be at least {2 * count} rows with a label each.")
    # Each thing that is drawn has a seed of its own: the target is the same with any references.
    entropy = _entropy(random_state)
    truth = _rng(entropy, 0).permutation(n) < n // 2
    inside = _rng(entropy, 1).permuted(np.tile(np.arange(models) < models // 2, (n, 1)), axis=1).T
    runs, owners = [], []
    for number, members in enumerate([truth, *inside]):
        rng = _rng(entropy, 2, number)
        owner = np.full(n, -1)
        owner[rng.permutation(np.flatnonzero(members))] = np.arange(members.sum()) % count
        dealt = [(rows[owner == k], labels[owner == k]) for k in range(count)]
        seed = int(rng.integers(2**62))
        runs.append(federated_rounds(module, dealt, (rows, labels), random_state=seed, **options))
        owners.append(owner)
        if progress is not None:
            progress(number + 1, models + 1)
    target = runs[0]
    observed = target.snapshots()
    snapshots = Snapshots(
        epochs=observed.epochs,
        confidence=observed.confidence,
        references=np.array([run.merged[1:] for run in runs[1:]]).swapaxes(0, 1)
        if models
        else np.zeros((0, 0, 0), np.float32),
        inside=inside,
        population=observed.population,
    )
    return FederatedGame(truth=truth, owner=owners[0], snapshots=snapshots, target=target)


def _rng(entropy: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=key))


def _entropy(random_state: int | None) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]  # an int, if unset
    return _checks.integer("random_state", random_state, least=0)
