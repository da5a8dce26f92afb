"""The answers to the items of a dossier, from the evidence alone.

Each function answers one kind of question. Nothing is proved without a guarantee that covers
everything in the model, and nothing is tested without an attack that was run. A figure names the
result that it comes from.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from expost.dossier.evidence import Evidence
from expost.dossier.items import Deployment, Status
from expost.mechanisms.statement import relation_text
from expost.numbers import (
    LEAST_DOUBT,
    chance,
    count,
    fixed,
    in_words,
    number,
    percent,
    share,
)
from expost.policy.facts import composed_epsilon
from expost.risk.attacks import RISKS
from expost.types import Audience

__all__ = ["ANSWERS", "Answer", "Figure"]

_AUDIT = "expost audit DATA --target COLUMN --model model.json --holdout OTHERS --out DIR"
_CONFOUNDED = (
    "Attacks were run, but members and non-members differ without the model, so that the attacks"
    " prove little. Audit rows that were drawn from the same table by coins."
)
_CHOSEN = {"coins": "by fair coins", "propensity": "with given probabilities"}
_PUBLIC = Audience.PUBLIC
_CURATOR = Audience.CURATOR_ONLY


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of an answer.

    Parameters
    ----------
    label : str
        What it is of.
    value : str
        The figure, rounded to the safe side if it is a bound.
    result : str
        The kind of the result that it comes from.
    audience : Audience
        Who may read it.
    assumption : str
        What it assumes; "" if nothing.
    """

    label: str
    value: str
    result: str
    audience: Audience = _PUBLIC
    assumption: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to an item.

    Parameters
    ----------
    status : Status
        Proved, tested or not done.
    text : str
        The answer in plain words; it holds no figure that is not public.
    figures : tuple[Figure, ...]
        Its figures, of every audience.
    command : str
        The command that would do what is not done; "" if there is none.
    """

    status: Status
    text: str
    figures: tuple[Figure, ...] = ()
    command: str = ""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its figures assume, each once."""
        return tuple(dict.fromkeys(each.assumption for each in self.figures if each.assumption))


def _not_done(text: str, *figures: Figure, command: str = "") -> Answer:
    return Answer(status=Status.NOT_DONE, text=text, figures=figures, command=command)


def _proved(evidence: Evidence, text: str, *figures: Figure, bound: float = 0.0) -> Answer:
    """Return a proved answer, or why nothing is proved; a ``bound`` of 1 proves nothing."""
    if evidence.gap is not None:
        reason, command = evidence.gap
        return _not_done(reason, command=command)
    if not bound < 1 - LEAST_DOUBT:
        return _not_done(
            "The guarantee is too weak: its bound allows an attack that nearly always succeeds.",
            *figures,
            command="expost profile DATA --target COLUMN --epsilon SMALLER --out DIR",
        )
    return Answer(status=Status.PROVED, text=text, figures=figures)


# -- figures ---------------------------------------------------------------------------------------


def _guarantee(evidence: Evidence) -> tuple[Figure, ...]:
    """Return ε and δ as they are stored; none where there is no guarantee at all."""
    guarantee = evidence.guarantee
    if guarantee is None or not guarantee.epsilon < math.inf:
        return ()
    return (
        Figure(label="ε", value=number(guarantee.epsilon, "up", 6), result=guarantee.source),
        Figure(label="δ", value=number(guarantee.delta, "up"), result=guarantee.source),
    )


def _bound(evidence: Evidence, name: str, label: str) -> tuple[Figure, ...]:
    """Return a bound on membership inference, by the first route that has it."""
    bounds, guarantee = evidence.bounds, evidence.guarantee
    if bounds is None or guarantee is None:
        return ()
    shown = bounds.figure(name).shown
    route = next((route.key for route in bounds.routes if route.key in shown), None)
    if route is None:
        return ()
    return (Figure(label=label, value=in_words(shown[route]), result=guarantee.source),)


def _posterior(evidence: Evidence) -> tuple[Figure, ...]:
    label = "Posterior probability that a person was in the data, from a prior of 50 %"
    bounds = evidence.bounds
    if bounds is not None and bounds.exceeded > 0:
        label += f", except with a chance of {chance(bounds.exceeded)}"
    return _bound(evidence, "posterior", label)


def _beyond(evidence: Evidence, risk: str, label: str = "") -> tuple[Figure, ...]:
    """Return the bounds on an attack beyond membership, of the guarantee and of any row."""
    bounds, guarantee = evidence.bounds, evidence.guarantee
    if bounds is None or guarantee is None:
        return ()
    label, start = label or RISKS[risk].label, share(evidence.baselines[risk])
    rows, assumption = evidence.rows.get(risk, {}), RISKS[risk].assumption
    if risk in evidence.assumed:
        assumption += (
            f" The baseline here, {start}, is the default and not from the data: name your own with"
            " --baseline."
        )
    texts = {
        "baseline_posterior": f"Posterior that the row was used, from {start}, the largest of any"
        " row in this model",
        "attack_bound": f"Chance of {label}, {start} without the model, the largest of any row over"
        " releases",
    }
    return (
        Figure(
            label=f"Chance of {label}, {start} without the model",
            value=in_words(percent(_chance(evidence, risk), "up")),
            result=guarantee.source,
            assumption=assumption,
        ),
        *(
            Figure(
                label=texts[name],
                value=in_words(percent(value, "up")),
                result="profile",
                audience=_CURATOR,
                assumption=assumption,
            )
            for name, value in rows.items()
        ),
    )


def _most_exposed(evidence: Evidence) -> tuple[Figure, ...]:
    """Return the certainty about the most exposed row in this very model."""
    largest = [
        float(each.certainty[-1])
        for each in evidence.facts.profiles
        if each.certainty is not None and len(each.certainty)
    ]
    if not largest:
        return ()
    return (
        Figure(
            label="The attacker's certainty about the most exposed row in this model",
            value=in_words(percent(max(largest), "up")),
            result="profile",
            audience=_CURATOR,
        ),
    )


def _attack_figures(evidence: Evidence) -> tuple[Figure, ...]:
    """Return how well the strongest attack did."""
    if evidence.strongest is None:
        return ()
    name, audit = evidence.strongest
    figures = audit.attacks[name]

    def interval(key: str, places: int, *, in_percent: bool) -> str:
        ends = figures[key]
        value = fixed(float(ends["value"]), places, percent=in_percent)
        low = fixed(float(ends["low"]), places, "down", percent=in_percent)
        high = fixed(float(ends["high"]), places, "up", percent=in_percent)
        unit = " %" if in_percent else ""
        return f"{value}{unit} ({low} to {high}{unit})"

    return (
        Figure(
            label=f"AUC of the strongest attack ({name}), with its interval",
            value=interval("auc", 3, in_percent=False),
            result="audit",
            audience=_CURATOR,
        ),
        Figure(
            label="TPR at 1 % FPR of the same attack, with its interval",
            value=interval("tpr_at_1_percent", 1, in_percent=True),
            result="audit",
            audience=_CURATOR,
        ),
    )


def _run(evidence: Evidence) -> tuple[Figure, ...]:
    """Return the names of the attacks and the number of rows, which are public."""
    if not evidence.attacks:
        return ()
    figures = [
        Figure(label="Attacks that were run", value=", ".join(evidence.attacks), result="audit")
    ]
    if evidence.attacked_rows:
        rows = count(evidence.attacked_rows)
        figures.append(Figure(label="Members and non-members", value=rows, result="audit"))
    audits = evidence.facts.audits
    fewest = min(each.references for each in audits)
    chosen = ", ".join(dict.fromkeys(_CHOSEN.get(each.chosen_by, "unknown") for each in audits))
    figures.append(Figure(label="References", value=count(fewest), result="audit"))
    figures.append(Figure(label="Members were chosen", value=chosen, result="audit"))
    dates = [made for kind, made in evidence.facts.dates if kind == "audit"]
    if dates:
        date = f"{min(dates):%Y-%m-%d}"
        figures.append(Figure(label="Date of the audit", value=date, result="audit"))
    return tuple(figures)


def _attacks(evidence: Evidence) -> tuple[Figure, ...]:
    return (*_run(evidence), *_attack_figures(evidence))


# -- answers ---------------------------------------------------------------------------------------


def _attacked(evidence: Evidence, deployment: Deployment, text: str, *more: Figure) -> Answer:
    """Return a tested answer; attackers who see the weights need a white-box attack."""
    if not evidence.attacks:
        return _not_done("No attack was run on this model.", command=_AUDIT)
    if evidence.is_confounded and not evidence.is_refuted:
        return _not_done(_CONFOUNDED, *_attacks(evidence), command=_AUDIT)
    if deployment.sees_weights and not evidence.has_white_box:
        return _not_done(
            "The attacks that were run use answers alone, and an attacker has the weights.",
            *_attacks(evidence),
            command=_AUDIT,
        )
    return Answer(status=Status.TESTED, text=text, figures=(*_attacks(evidence), *more))


def _likelihood(evidence: Evidence, deployment: Deployment) -> Answer:
    text = (
        f"The bounds hold for every {_unit_of(evidence)}, whatever the data, against an attacker"
        " who knows all other rows. They are on a row that is reconstructed, and on knowing that"
        " the row was in the data."
    )
    figures = _beyond(evidence, "reconstruction")
    return _largest(evidence, text, *figures, bound=_chance(evidence, "reconstruction"))


def _largest(evidence: Evidence, text: str, *more: Figure, bound: float = 0.0) -> Answer:
    """Return the bound on the posterior of any person, after other figures and their bound."""
    largest = max(bound, _largest_posterior(evidence))
    figures = (*more, *_posterior(evidence), *_most_exposed(evidence))
    return _proved(evidence, text, *figures, bound=largest)


def _largest_posterior(evidence: Evidence) -> float:
    """Return the bound on the posterior of any person; 1 if there is none."""
    posterior = None if evidence.bounds is None else evidence.bounds.posterior
    return 1.0 if posterior is None else float(posterior)


def _unit_of(evidence: Evidence) -> str:
    rows = 1 if evidence.release is None else evidence.release.mechanism.rows_per_person
    return "person with one row" if rows == 1 else f"person with up to {count(rows)} rows"


def _membership(evidence: Evidence, deployment: Deployment) -> Answer:
    bounds = (
        *_bound(evidence, "advantage", "Membership advantage of any attack"),
        *_bound(evidence, "true_positive_rate", "TPR at 1 % FPR of any attack"),
    )
    if evidence.gap is None:
        text = "The guarantee bounds every attack, known or not."
        advantage = None if evidence.bounds is None else evidence.bounds.advantage
        figures = (*bounds, *_attacks(evidence))
        return _proved(evidence, text, *figures, bound=1.0 if advantage is None else advantage)
    text = "Attacks were run. They are no guarantee: other attacks may find what these miss."
    answer = _attacked(evidence, deployment, text)
    return answer if answer.status is Status.TESTED else _with_gap(evidence, answer)


def _with_gap(evidence: Evidence, answer: Answer) -> Answer:
    """Return what is not done, with the reason why nothing is proved either."""
    reason = "" if evidence.gap is None else f" {evidence.gap[0]}"
    return _not_done(answer.text + reason, *answer.figures, command=answer.command)


def _of_risk(risk: str, text: str, label: str = "") -> "_Answers":
    def answer(evidence: Evidence, deployment: Deployment) -> Answer:
        figures = _beyond(evidence, risk, label)
        return _proved(evidence, text, *figures, bound=_chance(evidence, risk))

    return answer


def _chance(evidence: Evidence, risk: str) -> float:
    """Return the bound on an attack beyond membership; 1 if there is none."""
    bounds = evidence.bounds
    if bounds is None:
        return 1.0
    (attack,) = (each for each in bounds.attacks if each.risk.name == risk)
    return float(attack.by[bounds.routes[0].key])


def _exfiltration(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "No result examines the systems that hold the data and the model. What the model itself"
        " reveals of a row is answered under reconstruction."
    )


def _documentation(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "This dossier documents the mechanism, the guarantee and the tests. The impact assessment,"
        " the advice of the data protection officer and the choice of the data are not among the"
        " results."
    )


def _purposes(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done("Purposes, necessity and proportionality are not among the results.")


def _risks(evidence: Evidence, deployment: Deployment) -> Answer:
    text = (
        "The guarantee bounds what the model adds to the chance of each attack, for every person."
    )
    figures = (
        *_posterior(evidence),
        *(figure for risk in RISKS for figure in _beyond(evidence, risk)),
        *_most_exposed(evidence),
    )
    if evidence.gap is None:
        chances = [_chance(evidence, risk) for risk in RISKS]
        return _proved(evidence, text, *figures, bound=max(_largest_posterior(evidence), *chances))
    tested = "Attacks were run, and nothing is proved."
    answer = _attacked(evidence, deployment, tested)
    return answer if answer.status is Status.TESTED else _with_gap(evidence, answer)


def _measures(evidence: Evidence, deployment: Deployment) -> Answer:
    text = (
        "Random noise was added when the model was trained, so that it is differentially private."
    )
    return _proved(evidence, text, *_guarantee(evidence))


def _other_harm(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "Harm that does not come from presence in the training data, such as a wrong or unfair"
        " prediction, is not among the results."
    )


def _organisation(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done("Measures of organisation are not among the results.")


def _erasure(evidence: Evidence, deployment: Deployment) -> Answer:
    certificate = evidence.certificate
    if certificate is None or certificate.is_insertion:
        return _not_done(
            "No certificate of an erasure was given. If no person has requested erasure, none is"
            " needed yet.",
            command="expost forget DATA --target COLUMN --model model.json --id COLUMN"
            " --remove KEYS --out DIR",
        )
    if certificate.read_from_data:
        return _not_done(
            "Rows were erased, but constants of the model were read from the data of everybody,"
            " those who left too.",
            command="expost profile DATA --target COLUMN --encoding public.json --out DIR",
        )
    result = "certificate of an erasure"
    return Answer(
        status=Status.PROVED,
        text="The model has the law of a release without the erased rows, up to the distance that"
        " is stated. A new request is handled in the same way, with expost forget.",
        figures=(
            Figure(
                label="Distance of the laws (total variation)",
                value=f"at most {number(certificate.total_variation, 'up')}",
                result=result,
            ),
            Figure(
                label="Changes of the rows so far", value=count(certificate.changes), result=result
            ),
            Figure(label="Date of the last one", value=certificate.made, result=result),
        ),
    )


def _copies(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "Copies of a model that was made public are not called back by any result. Inform those who"
        " hold a copy, and publish the new model."
    )


def _unit(evidence: Evidence, deployment: Deployment) -> Answer:
    release = evidence.release
    if release is None:
        return _proved(evidence, "", *_guarantee(evidence))
    mechanism = release.mechanism
    rows = mechanism.rows_per_person
    if rows == 1:
        unit, text = (
            "a row",
            (
                "The unit is a row. The guarantee does not hold for a person with several rows; a"
                " user-level guarantee needs --max-rows-per-person."
            ),
        )
    else:
        unit = f"a person with up to {count(rows)} rows"
        text = "The unit is a person. The guarantee does not hold for a person with more rows."
    return _proved(
        evidence,
        text,
        Figure(label="Unit of privacy", value=unit, result="model"),
        Figure(label="The guarantee holds", value=relation_text(mechanism), result="model"),
    )


def _epsilon(evidence: Evidence, deployment: Deployment) -> Answer:
    text = "The model is (ε, δ)-differentially private. Smaller is stronger."
    answer = _proved(evidence, text, *_guarantee(evidence))
    if answer.status is Status.PROVED or evidence.is_refuted:
        return answer
    return _not_done(answer.text, *_guarantee(evidence), command=answer.command)


def _composition(evidence: Evidence, deployment: Deployment) -> Answer:
    listing = evidence.listing
    if listing is None:
        return _not_done("No ledger was given.", command="expost ledger DIR")
    if not evidence.is_listed:
        return _not_done(
            "The ledger does not list the model and its report, or no model was given.",
            command="expost ledger LEDGER --add model.json",
        )
    n, figures = len(listing.releases), []
    figures.append(Figure(label="Releases in the ledger", value=count(n), result="ledger"))
    epsilon = composed_epsilon(listing)
    if epsilon == math.inf or any(entry.read_from_data for entry in listing.entries):
        return _not_done(
            "A release of the ledger has no guarantee, seeded noise, or a guarantee that does not"
            " cover constants that were read from the data, and so have all of them together.",
            *figures,
        )
    at = f"ε of all of them together, at δ = {number(listing.delta, 'up')}"
    figures.append(Figure(label=at, value=f"at most {number(epsilon, 'up')}", result="ledger"))
    if evidence.is_refuted:
        return _proved(evidence, "")
    return Answer(
        status=Status.PROVED,
        text="All releases that the ledger lists are composed. Releases that are not listed are not"
        " covered.",
        figures=tuple(figures),
    )


def _algorithm(evidence: Evidence, deployment: Deployment) -> Answer:
    release = evidence.release
    figures: tuple[Figure, ...] = ()
    if release is not None:
        mechanism = release.mechanism
        figures = (
            Figure(label="Mechanism", value=mechanism.title, result="model"),
            Figure(label="Noise", value=mechanism.noise, result="model"),
            Figure(label="Rows", value=count(mechanism.rows), result="model"),
        )
    text = "The mechanism and its proof are in the documentation of expost (docs/theory)."
    return _proved(evidence, text, *figures)


def _correctness(evidence: Evidence, deployment: Deployment) -> Answer:
    lower = tuple(
        Figure(
            label="Lower bound on ε that the attacks prove",
            value=number(max(evidence.lower_bounds), "down"),
            result="audit",
            audience=_CURATOR,
        )
        for _ in evidence.lower_bounds[:1]
    )
    if evidence.is_refuted:
        text = (
            "A result refutes the guarantee of the model. Do not share the model before this is"
            " explained."
        )
    else:
        text = "Attacks were run on the model, and what they prove was compared with its guarantee."
    answer = _attacked(evidence, deployment, text, *lower)
    if answer.status is not Status.TESTED or evidence.is_refuted or evidence.could_refute:
        return answer
    return _not_done(
        "Attacks were run, but none of them could have refuted the guarantee of the model: there is"
        " no guarantee, or attacks that are always right would not prove more with so few rows and"
        " references.",
        *answer.figures,
        command=f"{_AUDIT} --references 128",
    )


def _bias(evidence: Evidence, deployment: Deployment) -> Answer:
    if not evidence.attacks or not evidence.groups:
        return _not_done(
            "Groups of people were not compared. The guarantee is the same for everybody; the"
            " success of attacks may differ.",
            command=f"{_AUDIT} --group COLUMN",
        )
    command = f"{_AUDIT} --group COLUMN"
    if evidence.is_confounded:
        return _not_done(_CONFOUNDED, command=command)
    text = "The success of the strongest attack was compared between groups."
    answer = _attacked(evidence, deployment, text)
    if answer.status is not Status.TESTED:
        return replace(answer, figures=(), command=command)
    compared = Figure(
        label="Columns by which groups were compared",
        value=count(evidence.groups),
        result="audit",
    )
    return replace(answer, figures=(compared,))


def _group_accuracy(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done("The accuracy of the model was not compared between groups.")


def _security(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "No result examines the machine on which the model was trained: the time that the training"
        " takes, its memory, and other users. SECURITY.md of expost states what a release betrays."
    )


def _handling(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "Collection, storage and access are not among the results. Differential privacy protects"
        " what is released, not the rows where they are stored."
    )


def _worst_case(evidence: Evidence, deployment: Deployment) -> Answer:
    return _largest(evidence, "The bound is on the largest risk of any person, not on an average.")


def _iso_attacked(evidence: Evidence, deployment: Deployment) -> Answer:
    text = "Membership inference attacks were run. No other kind of attack was run."
    return _attacked(evidence, deployment, text)


def _governance(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "Roles, access on a need-to-know basis and the date of the next assessment are not among"
        " the results. Files named CURATOR-ONLY are readable by their owner alone."
    )


def _rate_limits(evidence: Evidence, deployment: Deployment) -> Answer:
    return _not_done(
        "Limits on queries belong to the service, which no result examines. The guarantee holds for"
        " any number of queries."
        if evidence.gap is None
        else "Limits on queries belong to the service, which no result examines."
    )


def _simulated(evidence: Evidence, deployment: Deployment) -> Answer:
    text = (
        "Attacks were simulated on members and non-members. Their AUC is compared with"
        " that of random guessing, 0.5."
    )
    return _attacked(evidence, deployment, text)


def _intruder(evidence: Evidence, deployment: Deployment) -> Answer:
    text = (
        "Attack programs took the part of the intruder. No person searched for other people with"
        " public sources."
    )
    return _attacked(evidence, deployment, text, *_beyond(evidence, "re_identification"))


_Answers = Callable[[Evidence, Deployment], Answer]
ANSWERS: Mapping[str, _Answers] = {
    "likelihood": _likelihood,
    "membership": _membership,
    "attribute_inference": _of_risk(
        "attribute_inference",
        "The bound is on what the presence of a person's row adds. What the model says about people"
        " in general, such as a correlation, is not bounded.",
    ),
    "reconstruction": _of_risk(
        "reconstruction",
        "The bound holds for any method of reconstruction, whatever the attacker knows of other"
        " rows.",
    ),
    "re_identification": _of_risk(
        "re_identification",
        "The bound holds against an attacker who knows every other row and all candidates.",
    ),
    "inversion": _of_risk(
        "reconstruction",
        "Inversion that is aimed at a row of the training data is a reconstruction, and has its"
        " bound. The average input of a class is not protected.",
        label="inversion of a row",
    ),
    "regurgitation": _of_risk(
        "reconstruction",
        "A row that is returned is reconstructed, and so has that bound. The model was not queried"
        " for rows.",
        label="return of a row",
    ),
    "exfiltration": _exfiltration,
    "documentation": _documentation,
    "purposes": _purposes,
    "risks": _risks,
    "other_harm": _other_harm,
    "measures": _measures,
    "organisation": _organisation,
    "erasure": _erasure,
    "copies": _copies,
    "unit": _unit,
    "epsilon": _epsilon,
    "composition": _composition,
    "algorithm": _algorithm,
    "correctness": _correctness,
    "bias": _bias,
    "group_accuracy": _group_accuracy,
    "security": _security,
    "handling": _handling,
    "worst_case": _worst_case,
    "attacked": _iso_attacked,
    "governance": _governance,
    "rate_limits": _rate_limits,
    "simulated": _simulated,
    "intruder": _intruder,
}
