"""A privacy report to be published: a bound on the exposure of any row, from that row alone.

:class:`PublishedReport` is the result of :func:`expost.publish` and the content of ``report.json``:
the released model, the failure probability of the bound, and for a data-dependent report the noisy
gradient and Hessian. The bounds themselves are in :mod:`expost.mechanisms.bounds`.

Constants that were read from the data
--------------------------------------
The mechanism M(D; c) has constants c: means, scales, levels, a label set, a label range, what a
step of a pipeline was fitted to. Its (ε, δ) and every bound are statements about neighbouring D and
D′ under the same c, so they hold for any c that was fixed before. If c = c(D) was read from the
rows, D′ would have had constants of its own, and the report contains c: no ε and no bound covers
what c reveals. Such a report needs review, and names c.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from expost import _checks
from expost.data import Encoding
from expost.errors import InvalidInput, ReleaseRefused
from expost.files.atomic import write_json
from expost.files.sealed import Sealed, from_fields, number, plain, to_fields
from expost.ledger import Entry
from expost.mechanisms.bounds import (
    ExposureBound,
    ObjectiveBound,
    normal_quantile,
    upper_norms,
)
from expost.mechanisms.publishing import (
    NoisyTangent,
    PublishingBudget,
    TangentMechanism,
)
from expost.notices import listed
from expost.numbers import range_text, summed_up, upper_text
from expost.profiles.pipelines import Step
from expost.publishing.lookup import Answer, Form, form_number
from expost.release import Release
from expost.results import Displayed
from expost.types import Audience, FloatArray

__all__ = [
    "KINDS",
    "Answer",
    "PublishedReport",
    "RowBounds",
    "Spending",
    "check_publishable",
]

KINDS = ("data-independent", "data-dependent")
# The fields of the budget in report.json.
_SPENT = ("delta", "epsilon_gradient", "epsilon_hessian")


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The privacy cost of the model and its report, each as (ε, δ); infinite without guarantee.

    Parameters
    ----------
    sequential : tuple[float, float]
        All of it by basic composition.
    together : tuple[float, float]
        The same with the gradient and the Hessian composed exactly first.
    """

    model: tuple[float, float]
    sequential: tuple[float, float]
    together: tuple[float, float]
    gradient: tuple[float, float] | None = None
    hessian: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RowBounds:
    """The bounds of a report for rows, each (m,): see :meth:`PublishedReport.bound`.

    Parameters
    ----------
    everything : FloatArray
        A bound on the loss of all that was published: θ, ĝ and Ĥ.
    """

    exposure: FloatArray
    epsilon_gradient: FloatArray
    epsilon_hessian: FloatArray
    everything: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PublishedReport(Sealed, Displayed):
    """A function from a row to a bound on its exposure. As public as its model.

    Parameters
    ----------
    release : Release
        The one released model: θ and its constants.
    failure_probability : float
        ρ, for each part of the bound; ``fails_with`` is for the whole.
    budget, released : PublishingBudget | None, NoisyTangent | None
        What a data-dependent report spent, and ĝ and Ĥ; None of a data-independent one.
    steps : tuple[Step, ...], default=()
        Of a pipeline, before the model: rows are given as these return them.
    """

    release: Release
    failure_probability: float
    budget: PublishingBudget | None = None
    released: NoisyTangent | None = None
    steps: tuple[Step, ...] = ()

    FORMAT = "expost-report/1"
    NOUN = "a published report"
    INNER = ("model",)

    def __post_init__(self) -> None:
        check_publishable(self.release)
        rho = _checks.probability("failure_probability", self.failure_probability)
        object.__setattr__(self, "failure_probability", rho)
        if (self.budget is None) is not (self.released is None):
            raise InvalidInput("released: must be given with a budget, or both left out.")
        if self.budget is not None and self.budget.failure_probability != rho:
            raise InvalidInput("failure_probability: must be that of the budget.")
        if self.tangent is not None and self.released is not None:
            self.tangent.check()
            if not self.tangent.holds(self.released):
                raise InvalidInput(
                    "released: does not lie on the grids that its own constants give; the file was"
                    " edited."
                )

    @property
    def audience(self) -> Audience:
        """The audience of its model, which needs review if it guarantees no ε.

        The report also needs review if anything was read from the data.
        """
        return Audience.NEEDS_REVIEW if self.read_from_data else self.release.audience

    @property
    def read_from_data(self) -> tuple[str, ...]:
        """The constants that were read from the data, each as a part of a sentence."""
        steps = tuple(str(step) for step in self.steps if step.fitted)
        return (*steps, *self.release.read_from_data)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Sentences on what was read from the data, and how the figures depend on it."""
        read = self.read_from_data
        if not read:
            return ()
        return (
            f"Read from the data, without noise: {listed(read)}.",
            "Every epsilon, delta and bound of this report holds given these constants, as if they"
            " had been public before the rows were seen: data sets with and without a row are"
            " compared under the same constants. What the constants reveal is not covered, so the"
            " report needs a review before it is shared.",
        )

    @property
    def kind(self) -> str:
        """The kind of the report: whether it depends on the data beyond θ."""
        return KINDS[self.released is not None]

    @cached_property
    def tangent(self) -> TangentMechanism | None:
        """The mechanism that released ĝ and Ĥ, in a data-dependent report."""
        mechanism = self.release.mechanism
        if self.budget is None:
            return None
        return mechanism.tangent_mechanism(self.budget, self.release.theta)

    @cached_property
    def exposure_bound(self) -> ExposureBound:
        """The bound, for rows of the unit ball."""
        return self._bound_of(1)

    @cached_property
    def joint_bound(self) -> ExposureBound:
        """The bound that holds for all labels of a row at once, with the same probability."""
        return self._bound_of(self._label_count)

    def _bound_of(self, labels: int) -> ExposureBound:
        mechanism, theta, rho = self.release.mechanism, self.release.theta, self.failure_probability
        return mechanism.bound(theta, rho, self.tangent, self.released, labels=labels)

    @property
    def _label_count(self) -> int:
        """The number of labels that a person is shown: all classes, or the one number."""
        return 1 if self.release.classes is None else len(self.release.classes)

    def formula(self) -> dict[str, Any] | None:
        """Return the constants from which a page computes the bounds of all labels of a row.

        Returns
        -------
        dict[str, Any] | None
            Public constants; None if the bound of the mechanism has no script.
        """
        formula = self.joint_bound.formula()
        if formula is None or self.tangent is None:
            return formula
        separation = {**self.tangent.separation_constants(), "most": self._most_noise(jointly=True)}
        return formula | {"separation": separation}

    @property
    def fails_with(self) -> float:
        """The probability, over the noise, that the bound fails for one row.

        It is that of one label, and of all labels of a row at once.
        """
        return self.exposure_bound.failure_probability

    @cached_property
    def is_void(self) -> bool:
        """Whether the bound is infinite for every row: one of zeros moves the model the least."""
        width = np.shape(self.release.coefficients[0])[-1]
        classes, scale = self.release.classes, self.release.label_scale
        number = 0.0 if scale is None else scale.centre
        label = number if classes is None else classes[0]
        return not self.bound(np.zeros(width), label)[0] < np.inf

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of a table's columns, if the model was made from a table."""
        return self.release.table_encoding

    # -- the bound ---------------------------------------------------------------------------

    def bound(self, x: Any, y: Any) -> tuple[Any, ...]:
        """Return (exposure, epsilon_gradient, epsilon_hessian) of rows ``x`` with labels ``y``.

        Parameters
        ----------
        x : Any
            (m, k) rows in the units of the model's features, or one row (k,). Rows beyond the data
            norm are clipped to it, as they were for the model.
        y : Any
            (m,) labels, or one label.

        Returns
        -------
        exposure
            ∣loss∣ is at most this, except with probability ``fails_with``, if the row was fixed
            before the noise was drawn; (m,), or a number for one row, as the others.
        epsilon_gradient
            The least ε at which releasing ĝ is (ε, δ)-DP for this one row; 0 without release.
        epsilon_hessian
            The same for Ĥ (R&W Thm 10.2, by the exact Gaussian curve).
        """
        rows, labels, single = self._rows(x, y)
        bounds = self.bounds(rows, labels)
        figures = bounds.exposure, bounds.epsilon_gradient, bounds.epsilon_hessian
        return tuple(float(each[0]) for each in figures) if single else figures

    def bounds(self, rows: FloatArray, y: FloatArray, *, jointly: bool = False) -> RowBounds:
        """Return the bounds of rows of the unit ball, with labels as the loss takes them.

        Parameters
        ----------
        rows : FloatArray
            (m, d) rows of the unit ball.
        y : FloatArray
            (m,) their labels.
        jointly : bool, default=False
            Whether the bounds of all labels of a row hold at once, with the same probability.

        Returns
        -------
        RowBounds
            The bounds, one entry per row.
        """
        exposure = (self.joint_bound if jointly else self.exposure_bound).exposure(rows, y)
        if self.tangent is None:
            nothing = np.zeros(len(rows))
            return RowBounds(
                exposure=exposure,
                epsilon_gradient=nothing,
                epsilon_hessian=nothing,
                everything=exposure,
            )
        first, second = self.separations(rows, y)
        mu = np.hypot(first, second)
        return RowBounds(
            exposure=exposure,
            epsilon_gradient=self.tangent.costs(first),
            epsilon_hessian=self.tangent.costs(second),
            everything=exposure + mu * (mu / 2 + self._most_noise(jointly=jointly)),
        )

    def everything(self, x: Any, y: Any) -> Any:
        """Return a bound on the loss of all that was published: θ, ĝ and Ĥ.

        Given θ, the loss of the pair (ĝ, Ĥ) is normal with mean μ²/2 and variance μ² for the row's
        own μ, so μ²/2 + μΦ⁻¹(1−ρ/2) is added; fails with ``everything_fails_with``.

        Parameters
        ----------
        x : Any
            A row, or (m, …) rows, as the model takes them.
        y : Any
            Its label, or (m,) labels.

        Returns
        -------
        Any
            The bound in nats, or (m,) bounds.

        Raises
        ------
        InvalidInput
            If the columns are not those of the model.
        """
        rows, labels, single = self._rows(x, y)
        total = self.bounds(rows, labels).everything
        return float(total[0]) if single else total

    def _most_noise(self, *, jointly: bool) -> float:
        """Return Φ⁻¹(1−ρ/2m) for m labels, and how far both noises may move in their cells."""
        mechanism, d = self.tangent, self.release.mechanism.dimension
        assert mechanism is not None
        room = mechanism.gradient_grid.diagonal(d) / mechanism.gradient_scale
        room += mechanism.hessian_grid.diagonal(d * d) / mechanism.hessian_scale
        labels = self._label_count if jointly else 1
        return normal_quantile(self.failure_probability / (2 * labels)) + room

    @property
    def everything_fails_with(self) -> float:
        """The failure probability of ``everything``: ρ more than ``fails_with`` after a release."""
        more = 0.0 if self.tangent is None else self.failure_probability
        return min(self.fails_with + more, 1.0)

    def bound_for(self, values: Mapping[str, Any], label: Any) -> tuple[float, float, float]:
        """Return :meth:`bound` for values as on a form, {column: value}.

        Parameters
        ----------
        values : Mapping[str, Any]
            The values by the names of their columns.
        label : Any
            The label.

        Returns
        -------
        tuple[float, float, float]
            The bound on the exposure, and the costs of the report's gradient and Hessian.

        Raises
        ------
        InvalidInput
            If a value or the label is missing or invalid.
        """
        answer = self.lookup(values, label)[0]
        return answer.exposure, answer.epsilon_gradient, answer.epsilon_hessian

    def lookup(self, values: Mapping[str, Any], label: Any = None) -> tuple[Answer, ...]:
        """Return one answer for ``label``, or one for each label if it is left out.

        All answers hold at once, except with the probability that each of them states.

        Parameters
        ----------
        values : Mapping[str, Any]
            The values by the names of their columns.
        label : Any, optional
            The label; None: every label of a classifier.

        Returns
        -------
        tuple[Answer, ...]
            One answer for each label.

        Raises
        ------
        InvalidInput
            If a value is missing or invalid, or the label is not one of the model.
        """
        x, notes = self.form.features(values)
        release = self.release
        if self.input_condition is not None:
            notes = (self.input_condition, *notes)
        if release.ball.rows(x[None, :])[1] > 0:
            notes = (*notes, self.clip_note)
        jointly = label is None
        return tuple(self._answer(x, each, notes, jointly) for each in self._labels(label))

    @property
    def clip_note(self) -> str:
        """A sentence for rows past the data norm."""
        return (
            "The values together are larger than the model takes: the row was clipped to the limit"
            " of the model, as it would have been in training."
        )

    @property
    def label_note(self) -> str | None:
        """A sentence for labels past the label range of a regression; None for classes."""
        if self.release.label_scale is None:
            return None
        ends = range_text(*self.release.label_scale.ends)
        return (
            f"The label lies outside of the label range of the model ({ends}) and was clipped to"
            " it, as it would have been in training."
        )

    @cached_property
    def form(self) -> Form:
        """The form of the values that a lookup needs."""
        return Form.of(self.encoding, self.release)

    @property
    def input_condition(self) -> str | None:
        """A sentence if values must be given as the steps of a pipeline return them, or None."""
        if not self.steps:
            return None
        steps = listed([step.name for step in self.steps])
        return (
            f"The values of a row are those that the steps of the pipeline return ({steps}): for"
            " values as they stand on a form the bound is not valid."
        )

    def _labels(self, label: Any) -> tuple[Any, ...]:
        classes = self.release.classes
        if classes is None:
            if label is None:
                raise InvalidInput("label: must be given, because the model predicts a number.")
            return (form_number("label", label),)
        known = classes.tolist()
        if label is None:
            return tuple(known)
        if isinstance(label, str | int | float | np.generic):
            for known_label in known:
                if known_label == label or str(known_label) == str(label).strip():
                    return (known_label,)
        names = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        raise InvalidInput(f"label: must be {names}.")

    def _answer(self, x: FloatArray, label: Any, notes: tuple[str, ...], jointly: bool) -> Answer:
        scale, note = self.release.label_scale, self.label_note
        if scale is not None and note is not None and scale.past(label):
            notes = (*notes, note)
        rows, labels, _ = self._rows(x, label)
        bounds = self.bounds(rows, labels, jointly=jointly)
        return Answer(
            label=label,
            audience=self.audience,
            **{name: float(value[0]) for name, value in vars(bounds).items()},
            delta=0.0 if self.budget is None else self.budget.delta,
            fails_with=self.fails_with,
            everything_fails_with=self.everything_fails_with,
            notes=notes,
        )

    def _rows(self, x: Any, y: Any) -> tuple[FloatArray, FloatArray, bool]:
        """Return rows of the unit ball, labels of the loss, and whether it was one row."""
        given = getattr(x, "columns", None)
        # The columns of a table are selected by name.
        names = None if self.release.encodes(x) else self.release.feature_names
        if given is not None and names is not None and tuple(map(str, given)) != names:
            raise InvalidInput(
                f"x: its columns must be those of the model, in their order: {', '.join(names)}."
            )
        single = given is None and _checks.array(x, "x").ndim == 1
        if single:
            x, y = _checks.array(x, "x")[None, :], [y] if np.ndim(y) == 0 else y
        problem = self.release.objective(x, y)
        return problem.held.X, problem.held.y, single

    def separations(self, rows: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return (μ₂, μ₃): by how much ĝ and Ĥ of neighbouring data sets differ, in noise scales.

        Parameters
        ----------
        rows : FloatArray
            (m, d) rows of the unit ball.
        y : FloatArray
            (m,) their labels.

        Returns
        -------
        tuple[FloatArray, FloatArray]
            μ₂ of the gradient and μ₃ of the Hessian, (m,) each; of a data-dependent report only.
        """
        assert self.tangent is not None
        assert isinstance(self.exposure_bound, ObjectiveBound)
        norms = upper_norms(rows)
        slope, curvature = self.exposure_bound.derivatives(rows, y, norms)
        return self.tangent.separations(slope * norms, curvature * norms**2)

    # -- what was spent, in words --------------------------------------------------------------

    @property
    def spending(self) -> Spending:
        """The privacy cost of the model and the report together."""
        mechanism = self.release.mechanism
        epsilon = mechanism.epsilon if mechanism.worst_case < np.inf else np.inf
        model = (epsilon, mechanism.delta or 0.0)
        if self.tangent is None or self.budget is None:
            return Spending(model=model, sequential=model, together=model)
        extra = self.budget
        delta = min(summed_up([model[1], extra.delta, extra.delta]), 1.0)
        added = summed_up([extra.epsilon_gradient, extra.epsilon_hessian])
        return Spending(
            model=model,
            gradient=(extra.epsilon_gradient, extra.delta),
            hessian=(extra.epsilon_hessian, extra.delta),
            sequential=(summed_up([epsilon, added]), delta),
            together=(summed_up([epsilon, min(self.tangent.epsilon_together, added)]), delta),
        )

    @property
    def statements(self) -> tuple[str, ...]:
        """What the report states and does not state, a sentence each (part of report.json)."""
        mechanism, spent = self.release.mechanism, self.spending
        sentences = [
            "For the row of any person, in the data or not, the report gives an upper bound of its"
            " exposure, the absolute log ratio of the densities of the released theta with and"
            " without that row, in nats.",
        ]
        fails = f"The bound fails with probability at most {upper_text(self.fails_with, 3)}"
        if self.exposure_bound.is_uniform:
            sentences.append(f"{fails}, for all rows at once.")
        else:
            sentences.append(
                f"{fails} for a row that was fixed before the noise was drawn; it says nothing of a"
                " row that was picked after looking at theta or at this report."
            )
        if mechanism.delta is None and spent.model[0] < np.inf:
            sentences.append(
                f"No bound is above epsilon = {upper_text(spent.model[0])}, which the model"
                " guarantees."
            )
        if not spent.model[0] < np.inf:
            sentences.append(
                "The model itself has no epsilon guarantee: its loss has no bounded gradient."
            )
        if spent.gradient is None or spent.hessian is None:
            constants = "the constants of the model" if self.read_from_data else "public constants"
            sentences.append(f"It is computed from theta and {constants}: it spent nothing more.")
        else:
            sentences.append(
                f"It released a gradient at epsilon = {upper_text(spent.gradient[0])} and a Hessian"
                f" at epsilon = {upper_text(spent.hessian[0])}, delta ="
                f" {upper_text(spent.gradient[1])} each, beyond the model; another report of the"
                " same model would spend that again."
            )
        sentences += self.conditions
        sentences += [] if self.input_condition is None else [self.input_condition]
        return tuple(sentences)

    def __repr__(self) -> str:
        return f"PublishedReport({self.kind}, {self.release!r})"

    # -- report.json ---------------------------------------------------------------------------

    def content(self) -> dict[str, Any]:
        """Return the content of report.json.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        # Left out if they are empty: files of earlier versions lack them.
        optional = {
            "read_from_data": list(self.read_from_data),
            "steps": [to_fields(step) for step in self.steps],
        }
        return {
            "kind": self.kind,
            "statements": list(self.statements),
            "failure_probability": self.failure_probability,
            "fails_with": self.fails_with,
            **{name: value for name, value in optional.items() if value},
            "released": self._released_fields(),
            "model": self.release.to_json(),
        }

    def _released_fields(self) -> dict[str, Any] | None:
        if self.tangent is None or self.released is None or self.budget is None:
            return None
        d = self.release.mechanism.dimension
        lower = [plain(self.released.hessian[i, : i + 1]) for i in range(d)]
        return {
            **{name: getattr(self.budget, name) for name in _SPENT},
            "scales": dict(self.tangent.derived),
            "gradient": plain(self.released.gradient),
            "hessian_lower_triangle": lower,
        }

    def save(self, path: str | Path) -> Path:
        """Write report.json, whole or not at all; one that is not public to a CURATOR-ONLY file.

        Parameters
        ----------
        path : str | Path
            The file to write.

        Returns
        -------
        Path
            The path of the written file.
        """
        path = path if self.audience is Audience.PUBLIC else self.audience.path(path)
        return write_json(path, self.audience, self.to_json())

    def derived(self) -> Iterable[tuple[str, ...]]:
        """Return the paths of the scales of the noise, which follow from the budget.

        Returns
        -------
        Iterable[tuple[str, ...]]
            The paths, each as the names of nested fields.
        """
        scales = () if self.tangent is None else self.tangent.derived
        return (("released", "scales", name) for name in scales)

    @classmethod
    def from_content(cls, value: dict[str, Any]) -> Self:
        """Return the report with these fields.

        Parameters
        ----------
        value : dict[str, Any]
            The fields of report.json.

        Returns
        -------
        Self
            The checked report.

        Raises
        ------
        InvalidInput
            If a field is missing or invalid.
        """
        rho = number(value["failure_probability"])
        release, released = Release.from_json(value["model"]), value["released"]
        steps = tuple(from_fields(Step, step) for step in value.get("steps", ()))
        if released is None:
            return cls(release=release, failure_probability=rho, steps=steps)
        spent = {name: number(released[name]) for name in _SPENT}
        return cls(
            release=release,
            failure_probability=rho,
            steps=steps,
            budget=PublishingBudget(**spent, failure_probability=rho),
            released=NoisyTangent(
                gradient=np.array([number(entry) for entry in released["gradient"]]),
                hessian=_symmetric(released["hessian_lower_triangle"], len(release.theta)),
            ),
        )

    def entries(
        self, written: Mapping[str, Any], *, name: str, made: str, data: str | None
    ) -> tuple[Entry, ...]:
        """Return the ledger's entries of the model and of the report's own release.

        See :class:`expost.ledger.Listable`.

        Parameters
        ----------
        written : Mapping[str, Any]
            The document as it was written, whose checksum is listed.
        name : str
            The file of the release.
        made : str
            The time of the release.
        data : str | None
            The salted digest of the rows; None where it is not known.

        Returns
        -------
        tuple[Entry, ...]
            One entry for the model, and one for a data-dependent report.
        """
        read = len(self.read_from_data)
        model = tuple(
            replace(line, read_from_data=read)
            for line in self.release.entries(written["model"], name=name, made=made, data=data)
        )
        if self.tangent is None or self.budget is None:
            return model
        mechanism, budget = self.release.mechanism, self.budget
        entry = Entry(
            release=written["sha256"],
            kind="report",
            made=made,
            name=name,
            mechanism="gradient and Hessian",
            noise="gaussian",
            epsilon=budget.epsilon_gradient + budget.epsilon_hessian,
            delta=min(2 * budget.delta, 1 - 2.0**-53),
            guarantee=self.tangent.guarantee,
            dimension=mechanism.dimension,
            rows=mechanism.rows,
            seeded=False,
            read_from_data=read,
            data=data,
            relation="remove",
        )
        return (*model, entry)


def check_publishable(release: Release) -> None:
    """Refuse a model without bounded exposures."""
    if not release.mechanism.is_private:
        raise ReleaseRefused(
            "epsilon=inf: the model carries no noise, so that no exposure is bounded; fit one with"
            " a finite epsilon."
        )
    if release.seeded:
        raise ReleaseRefused(
            "random_state: the model's noise came from a seed, and no bound holds against an"
            " attacker who knows it; fit one without a random_state."
        )
    if release.mechanism.grid.is_clamped(release.theta):
        raise ReleaseRefused(
            "theta: lies on the clamp of its grid, which happens once in 1e12 releases and leaves"
            " its cell unbounded; no bound can be published of this model."
        )


def _symmetric(lower: Any, dimension: int) -> FloatArray:
    """Return the symmetric matrix of a lower triangle."""
    if [len(row) for row in lower] != list(range(1, dimension + 1)):
        raise InvalidInput(
            f"hessian_lower_triangle: must have {dimension} rows of 1, 2, … numbers."
        )
    matrix = np.zeros((dimension, dimension))
    for index, row in enumerate(lower):
        matrix[index, : index + 1] = [number(entry) for entry in row]
        matrix[: index + 1, index] = matrix[index, : index + 1]
    return matrix
