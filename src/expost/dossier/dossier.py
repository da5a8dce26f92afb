"""A dossier: every item with its status, its answer, its figures and its source; gaps first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from expost import _checks
from expost.dossier.answers import ANSWERS, Answer
from expost.dossier.evidence import Evidence, ResultFile, read_evidence
from expost.dossier.items import ITEMS, Deployment, Item, Status
from expost.errors import InvalidInput
from expost.mechanisms.statement import description_at
from expost.results import Displayed
from expost.types import Audience

__all__ = ["DISCLAIMER", "Answered", "Dossier", "make_dossier"]

# The only sentence in which the word occurs.
DISCLAIMER = (
    "No compliance with any law or standard is claimed: that is for the controller and the"
    " authorities to assess."
)
FORMAT = "expost-dossier/1"


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An item with its answer.

    Parameters
    ----------
    item : Item
        The question and its source.
    answer : Answer
        Its status, text, figures and command.
    exempt : str
        Why the item does not apply to this deployment; "" if it applies.
    """

    item: Item
    answer: Answer
    exempt: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        source = self.item.source
        return {
            "key": self.item.key,
            "title": self.item.title,
            "question": self.item.question,
            "source": {"document": source.document, "paragraph": source.paragraph or None},
            "text_checked": source.is_checked,
            "applies": not self.exempt,
            "reason": self.exempt or None,
            "status": self.answer.status.value,
            "answer": self.answer.text,
            "figures": [
                {
                    "label": figure.label,
                    "value": figure.value,
                    "result": figure.result,
                    "audience": figure.audience.value,
                }
                for figure in self.answer.figures
            ],
            "assumptions": list(self.answer.assumptions),
            "command": self.answer.command or None,
        }


@dataclass(frozen=True, kw_only=True)
class Dossier(Displayed):
    """What authorities and standards ask of a model, answered item by item.

    Parameters
    ----------
    deployment : Deployment
        Who can use the model.
    audience : Audience
        Who may read the dossier. It holds no figure of a stricter audience.
    answers : tuple[Answered, ...]
        Every item, in the order of the table of items.
    baselines : Mapping[str, float]
        The baseline of each bound beyond membership, by the name of the risk.
    model : str | None
        The model in one line; None if none was given.
    files : tuple[ResultFile, ...]
        The results that the reader may know of.
    kinds : tuple[str, ...]
        The kinds of all results that were read.
    results : tuple[tuple[str, Path], ...]
        The kind and the path of every file that was read, of any audience.
    """

    deployment: Deployment
    audience: Audience
    answers: tuple[Answered, ...]
    baselines: Mapping[str, float]
    model: str | None
    files: tuple[ResultFile, ...]
    kinds: tuple[str, ...]
    results: tuple[tuple[str, Path], ...]

    def of(self, status: Status) -> tuple[Answered, ...]:
        """Return the items that apply and have this status.

        Parameters
        ----------
        status : Status
            The status.

        Returns
        -------
        tuple[Answered, ...]
            The items in their order.
        """
        return tuple(
            each for each in self.answers if not each.exempt and each.answer.status is status
        )

    @property
    def exempt(self) -> tuple[Answered, ...]:
        """The items that do not apply to this deployment."""
        return tuple(each for each in self.answers if each.exempt)

    @property
    def ordered(self) -> tuple[Answered, ...]:
        """Every item: what is not done first, and what does not apply last."""
        return (*(each for status in Status for each in self.of(status)), *self.exempt)

    @property
    def copies(self) -> tuple[ResultFile, ...]:
        """The public results, which are copied next to the dossier."""
        public = [file for file in self.files if file.audience is Audience.PUBLIC and file.copy]
        return tuple({file.copy: file for file in public}.values())

    def scalars(self) -> dict[str, Any]:
        """Return the public figures: how many items have each status.

        Returns
        -------
        dict[str, Any]
            The figures by name.
        """
        counts = {status.value: len(self.of(status)) for status in Status}
        return {"context": self.deployment.value, **counts, "does not apply": len(self.exempt)}

    def fields(self) -> dict[str, Any]:
        """Return the values of the JSON.

        Returns
        -------
        dict[str, Any]
            The fields by name.
        """
        return {
            "format": FORMAT,
            "audience": self.audience.value,
            "meaning": self.audience.meaning,
            "context": self.deployment.value,
            "attacker": self.deployment.attacker,
            "baselines": dict(self.baselines),
            "disclaimer": DISCLAIMER,
            "model": self.model,
            "items": [each.fields() for each in self.ordered],
            "results": [
                {"name": file.name, "kind": file.kind, "sha256": file.sha256} for file in self.files
            ],
        }


def make_dossier(
    paths: Sequence[str | Path],
    *,
    context: Deployment | str,
    audience: Audience | str = Audience.PUBLIC,
    baseline: float | Mapping[str, float] | None = None,
) -> Dossier:
    """Answer what authorities and standards ask of a model, from its stored results.

    Parameters
    ----------
    paths : Sequence[str | Path]
        Folders that expost commands wrote, or files in them; all of one model.
    context : Deployment | str
        Who can use the model: "public-model", "api" or "internal".
    audience : Audience | str, default=Audience.PUBLIC
        "public": public figures and statuses. "curator-only": every figure.
    baseline : float | Mapping[str, float], optional
        The probability with which attacks beyond membership succeed without the model: one for all,
        or a mapping from "re_identification", "attribute_inference" or "reconstruction". Of risks
        that it does not name, 1/1000.

    Returns
    -------
    Dossier
        The dossier. It needs review if the released model does.

    Raises
    ------
    InvalidInput
        If a path holds no result, a result is damaged, or results are of different models.
    """
    names = tuple(each.value for each in Deployment)
    _checks.one_of("context", context.value if isinstance(context, Deployment) else context, names)
    deployment, readers = Deployment(context), _readers(audience)
    evidence = read_evidence(paths, baseline=baseline)
    if readers is Audience.PUBLIC:
        readers = evidence.audience
    answers = tuple(
        Answered(
            item=item,
            answer=_for(ANSWERS[item.answer](evidence, deployment), readers),
            exempt=item.exempt.get(deployment, ""),
        )
        for item in ITEMS
    )
    return Dossier(
        deployment=deployment,
        audience=readers,
        answers=answers,
        baselines=evidence.baselines,
        model=_model(evidence),
        files=tuple(file for file in evidence.files if _may_know(file, readers)),
        kinds=tuple(dict.fromkeys(file.kind for file in evidence.files)),
        results=tuple(evidence.results),
    )


def _readers(audience: Audience | str) -> Audience:
    value = audience.value if isinstance(audience, Audience) else audience
    if value not in (Audience.PUBLIC.value, Audience.CURATOR_ONLY.value):
        raise InvalidInput(f"audience={value!r}: must be 'public' or 'curator-only'.")
    return Audience(value)


def _for(answer: Answer, readers: Audience) -> Answer:
    """Return the answer without figures that these readers may not see."""
    if readers is Audience.CURATOR_ONLY:
        return answer
    figures = tuple(each for each in answer.figures if each.audience is Audience.PUBLIC)
    return replace(answer, figures=figures)


def _may_know(file: ResultFile, readers: Audience) -> bool:
    """Return whether readers may see the checksum of a file, which is a function of its content."""
    if readers is Audience.CURATOR_ONLY:
        return True
    allowed = (Audience.PUBLIC, readers)
    return file.audience in allowed


def _model(evidence: Evidence) -> str | None:
    """Return the model in one line, with the stored guarantee, a report included."""
    guarantee, release = evidence.guarantee, evidence.release
    if guarantee is None or release is None or not guarantee.epsilon < math.inf:
        return None
    mechanism = release.mechanism
    line = description_at(mechanism, guarantee.epsilon, guarantee.delta or None)
    return f"{line}, n = {mechanism.rows}, d = {mechanism.dimension}"
