"""``identifiability``, the verb: what a guarantee allows an attacker, or what meets a goal.

For a profile the result is that of its rows (:mod:`expost.profiles.posterior`).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from expost import _checks
from expost.errors import InvalidInput
from expost.mechanisms.base import default_delta, noise_title
from expost.mechanisms.statement import description_at, statements
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import Profile
from expost.profiles.stored import StoredProfile
from expost.release import Release
from expost.risk.attacks import baselines_of
from expost.risk.guarantee import Guarantee, count
from expost.risk.questions import (
    Scenario,
    Training,
    of_dpsgd,
    of_epsilon,
    of_goal,
    of_guarantee,
    of_mu,
)
from expost.risk.statement import Identifiability
from expost.training import LogisticTraining
from expost.types import Neighbouring

__all__ = ["Identifiability", "RowIdentifiability", "identifiability"]

# The figures that are limited, by the name of the option.
GOALS = {
    "max_posterior": "posterior",
    "advantage": "advantage",
    "true_positive_rate": "true_positive_rate",
    "one_in": "one_in",
}


@overload
def identifiability(
    subject: Profile | StoredProfile, *, prior: float = 0.5, baseline: float | None = None
) -> RowIdentifiability: ...


@overload
def identifiability(
    subject: Guarantee | Release | str | Path | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    noise_multiplier: float | None = None,
    sampling_rate: float | None = None,
    steps: int | None = None,
    relation: Neighbouring | str | None = None,
    max_posterior: float | None = None,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    one_in: float | None = None,
    prior: float = 0.5,
    false_positive_rate: float = 0.01,
    exceeded: float | None = None,
    baseline: float | Mapping[str, float] | None = None,
    releases: int = 1,
    rows: int | None = None,
    features: int | None = None,
) -> Identifiability: ...


def identifiability(
    subject: Any = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    noise_multiplier: float | None = None,
    sampling_rate: float | None = None,
    steps: int | None = None,
    relation: Neighbouring | str | None = None,
    max_posterior: float | None = None,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    one_in: float | None = None,
    prior: float = 0.5,
    false_positive_rate: float = 0.01,
    exceeded: float | None = None,
    baseline: float | Mapping[str, float] | None = None,
    releases: int = 1,
    rows: int | None = None,
    features: int | None = None,
) -> Identifiability | RowIdentifiability:
    """Return what a guarantee allows an attacker, or the guarantee that meets a goal (D5.3).

    Pass exactly one guarantee (``subject``, ``epsilon``, ``mu`` or ``noise_multiplier``) or one
    goal (``max_posterior``, ``advantage``, ``true_positive_rate`` or ``one_in``).

    Parameters
    ----------
    subject : Any, optional
        A profile: the posterior of each of its rows; a released model or its model.json: its
        guarantee, with the audience of the model; or any :class:`expost.risk.Guarantee`, which is
        public.
    epsilon : float, optional
        Any mechanism that is (ε, δ)-DP.
    delta : float, optional
        The δ of each release's (ε, δ), 0 if it is left out; with μ or DP-SGD, the δ at which the ε
        of all releases is stated.
    mu : float, optional
        Gaussian noise of σ = sensitivity/μ.
    noise_multiplier : float, optional
        DP-SGD with this noise, ``sampling_rate`` and ``steps``.
    sampling_rate, steps : float | None, int | None
        Of DP-SGD, 1 by default. With a goal, ``steps`` adds a noise multiplier to the result.
    relation : Neighbouring | str, optional
        Of DP-SGD: "remove" (the default: rows are removed or added) or "replace".
    max_posterior : float, optional
        The goal: the largest posterior that a row was in the training data.
    advantage : float, optional
        The goal: the attacker's expected membership advantage.
    true_positive_rate : float, optional
        The goal: the share of members detected at ``false_positive_rate``.
    one_in : float, optional
        The goal: a posterior of at most 1/``one_in``, from a ``prior`` below that.
    prior : float, default=0.5
        The attacker's probability of presence before the release.
    false_positive_rate : float, default=0.01
        The false-positive rate at which a true-positive rate is stated.
    exceeded : float, optional
        The probability with which the posterior may be exceeded. If it is left out: δ if the noise
        is known (μ, DP-SGD), and 10·δ for any mechanism, because (ε, δ) with δ > 0 bounds no
        posterior at δ itself (erratum 10).
    baseline : float | Mapping[str, float], optional
        The probability with which an attack succeeds without a release: adds the bounds on
        re-identification, attribute inference and reconstruction. One for all three, or a mapping
        from "re_identification", "attribute_inference" or "reconstruction". For a profile one
        number: adds the bound of each row and its posterior from that prior.
    releases : int, default=1
        The number of independent releases, *each* with the guarantee.
    rows, features : int, optional
        The size of a table: the result for ``epsilon`` or a goal then holds a forecast of the
        logistic regression that the estimators' defaults release at this ε, before any row is read.
        A δ that is left out is theirs too, min(10⁻⁶, 1/(10·rows)). A released model has its
        forecast without them.

    Returns
    -------
    Identifiability or RowIdentifiability
        For a goal, an ε for any mechanism, a μ (σ) for Gaussian noise and, with ``steps``, a noise
        multiplier for DP-SGD: the least noise that meets it, never less. For a profile, the
        figures of its rows.

    Raises
    ------
    InvalidInput
        If not exactly one guarantee or goal is given, or an option does not apply to it.
    """
    named = {
        "epsilon": epsilon,
        "mu": mu,
        "noise_multiplier": noise_multiplier,
        "max_posterior": max_posterior,
        "advantage": advantage,
        "true_positive_rate": true_positive_rate,
        "one_in": one_in,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if isinstance(subject, Profile | StoredProfile):
        others = (*given.values(), delta, sampling_rate, steps, relation, exceeded, rows, features)
        if any(value is not None for value in others) or (releases, false_positive_rate) != (
            1,
            0.01,
        ):
            raise InvalidInput(
                "subject: a profile takes no option except prior and baseline; for several"
                " releases, profile their models together."
            )
        if isinstance(baseline, Mapping):
            raise InvalidInput(
                "baseline: of a profile it is one number, which holds for every kind of attack."
            )
        return subject.identifiability(prior, baseline=baseline)
    if len(given) + (subject is not None) != 1:
        names = [*(["a model"] if subject is not None else []), *given]
        raise InvalidInput(
            f"{' and '.join(names) or 'nothing'} given: must be one guarantee (a model, epsilon, mu"
            " or noise_multiplier) or one goal (max_posterior, advantage, true_positive_rate,"
            " one_in)."
        )
    ((name, value),) = given.items() or [("subject", subject)]
    table = _table(rows, features, name)
    if table is not None and delta is None:
        delta = default_delta(table[0])
    scenario = Scenario(
        prior=prior,
        delta=delta,
        exceeded=exceeded,
        false_positive_rate=false_positive_rate,
        releases=releases,
        baselines=baselines_of(baseline),
    )
    training = None
    if name == "noise_multiplier" or (name in GOALS and steps is not None):
        training = _training(sampling_rate, steps, relation)
    else:
        _no_training(sampling_rate=sampling_rate, steps=steps, relation=relation)
    if name in GOALS:
        answer = of_goal(GOALS[name], value, scenario, training)
        return _with_forecast(answer, answer.epsilon_each, scenario.delta, table)
    if training is not None:
        return of_dpsgd(value, training, scenario)
    answers = {"subject": _of_subject, "epsilon": of_epsilon, "mu": of_mu}
    return _with_forecast(answers[name](value, scenario), value, scenario.delta, table)


def _of_subject(subject: Any, scenario: Scenario) -> Identifiability:
    if isinstance(subject, Guarantee):
        return of_guarantee(subject, scenario)
    release = Release.load(subject) if isinstance(subject, str | Path) else subject
    release = getattr(release, "release_", release)
    if not isinstance(release, Release):
        raise InvalidInput(
            f"subject: {type(subject).__name__} is not known; pass a profile, a released model, the"
            " path of its model.json or a guarantee of expost.risk."
        )
    mechanism = release.mechanism
    own = replace(scenario, delta=scenario.delta if scenario.delta is not None else mechanism.delta)
    description = f"{mechanism.title}, {noise_title(mechanism.noise)}, none of it"
    if mechanism.is_private:
        description = description_at(mechanism, mechanism.epsilon, mechanism.delta)
    # Its constants, and with them the result, may depend on the rows.
    guarantee = mechanism.guarantee(mechanism.rows_per_person)
    answer = of_guarantee(guarantee, own, description=description)
    return replace(
        answer,
        forecast=mechanism.forecast,
        statements=statements(mechanism),
        audience=release.audience,
        model=release.to_json()["sha256"],
    )


def _table(rows: int | None, features: int | None, name: str) -> tuple[int, int] | None:
    """Return the numbers of rows and features of a forecast, or None without a forecast."""
    if rows is None and features is None:
        return None
    if rows is None or features is None:
        missing = "rows" if rows is None else "features"
        raise InvalidInput(f"{missing}=None: a forecast needs the numbers of rows and of features.")
    if name != "epsilon" and name not in GOALS:
        raise InvalidInput(
            "rows, features: a forecast is for epsilon or a goal; a model has its own, and mu and"
            " noise_multiplier have none. Leave them out."
        )
    return _checks.integer("rows", rows, least=2), _checks.integer("features", features, least=1)


def _with_forecast(
    answer: Identifiability,
    epsilon: float | None,
    delta: float | None,
    table: tuple[int, int] | None,
) -> Identifiability:
    """Return the answer with the forecast of the estimators' default release at (ε, δ)."""
    if table is None or epsilon is None:
        return answer
    rows, features = table
    training = LogisticTraining(epsilon, delta)
    dimension = features + training.fit_intercept
    mechanism = training.mechanism_for(training.loss_of(2), rows, dimension)
    return replace(answer, forecast=mechanism.forecast)


def _training(
    sampling_rate: float | None, steps: int | None, relation: Neighbouring | str | None
) -> Training:
    rate = 1.0 if sampling_rate is None else _checks.positive("sampling_rate", sampling_rate)
    if not rate <= 1:
        raise InvalidInput(f"sampling_rate={sampling_rate!r}: must be a share of at most 1.")
    return Training(
        sampling_rate=rate,
        steps=1 if steps is None else count("steps", steps),
        relation=Neighbouring.REMOVE if relation is None else Neighbouring.parse(relation),
    )


def _no_training(**given: Any) -> None:
    """Refuse options of a training by DP-SGD."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"{name}={value!r}: belongs to DP-SGD; give it with noise_multiplier, or with a"
                " goal and steps, else leave it out."
            )
