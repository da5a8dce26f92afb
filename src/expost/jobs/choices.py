"""Every constant that shaped a result, and where it came from."""

from dataclasses import dataclass
from typing import Protocol

from expost.data import Encoding, Mark
from expost.jobs.table import MISSING, TableJob
from expost.losses import Loss, Squared
from expost.report import Choice, Origin

__all__ = ["Chosen", "Constants"]


class Constants(Protocol):
    """The public constants that every mechanism has."""

    @property
    def kind(self) -> str:
        """What is perturbed: "output" or "objective"."""

    @property
    def noise(self) -> str:
        """The name of its noise."""

    @property
    def delta(self) -> float | None:
        """δ, or None under pure ε."""

    @property
    def loss(self) -> Loss:
        """The loss that is minimised."""

    @property
    def regularization(self) -> float:
        """Λ."""

    @property
    def rows(self) -> int:
        """The number n of rows."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What was chosen for a job.

    ``settled`` is where all of it comes from, if a model that exists has settled it.
    """

    job: TableJob
    encoding: Encoding
    settled: Origin | None = None

    def choice(
        self, name: str, value: str, asked: object, otherwise: Origin = Origin.DEFAULT
    ) -> Choice:
        """One choice: given if it was ``asked`` for, else from where ``otherwise`` says."""
        origin = Origin.GIVEN if asked is not None else otherwise
        return Choice(name=name, value=value, origin=self.settled or origin)

    def target(self, how: Constants) -> tuple[Choice, ...]:
        """What is predicted, and what is known of it."""
        job, goal = self.job, self.encoding.target
        column = self.choice("target", goal.column, job.target)
        if isinstance(how.loss, Squared):
            bound = f"{how.loss.label_bound:.6g}"
            return column, self.choice("label_bound", bound, job.label_bound, Origin.READ)
        classes = ", ".join(goal.classes or ())
        return column, self.choice("classes", classes, _given(goal.mark), Origin.READ)

    def model(self, how: Constants, *, intercept: str, remark: str = "") -> tuple[Choice, ...]:
        """How it is predicted; ``remark`` goes with a Λ that was not given."""
        job = self.job
        asked = None if job.regularization == "auto" else job.regularization
        penalty = f"{how.regularization:.6g}{remark if asked is None else ''}"
        norm, mark = f"{self.encoding.data_norm:.6g}", self.encoding.data_norm_mark
        choices = [
            self.choice("mechanism", f"{how.kind} perturbation", job.mechanism),
            self.choice("noise", how.noise, job.noise),
            self.choice("loss", how.loss.name, job.loss),
            self.choice("regularization", penalty, asked, Origin.RULE),
            self.choice("data_norm", norm, _given(mark), Origin.READ),
            self.choice("intercept", intercept, None),
            self.choice("rows", str(how.rows), None, Origin.READ),
        ]
        if how.delta is not None:
            choices.insert(1, self.choice("delta", f"{how.delta:g}", job.delta))
        return tuple(choices)

    def table(self) -> tuple[Choice, ...]:
        """How the table was read."""
        job, tokens = self.job, self.encoding.missing
        missing = None if tokens == MISSING else tokens
        text = ", ".join(map(repr, tokens)) or "none"
        choices = [self.choice("missing cells", text, missing)]
        if job.drop:
            choices.append(self.choice("dropped columns", ", ".join(map(repr, job.drop)), job.drop))
        if job.encoding is not None:
            choices.append(self.choice("encoding", job.encoding.name, job.encoding))
        return tuple(choices)


def _given(mark: Mark) -> bool | None:
    return True if mark is Mark.GIVEN else None
