"""What authorities and standards ask of a trained model: one item for each question.

A paragraph of a document (an article, a control) is named only where its text was read. Otherwise
the document is named and the item is marked "text not checked". Questions are in our own words.

Read were Art. 17(1), 17(2) and 35(7) of the GDPR, in reprints, and the controls C11.2 of OWASP
AISVS 1.0, whose text is frozen, in its bilingual edition in the project's repository. Of EDPB
Opinion 28/2024 only the beginning of the executive summary was read, which is not enough
for any item.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["ITEMS", "Deployment", "Item", "Source", "Status"]


class Status(Enum):
    """How an item is answered.

    PROVED: by a guarantee or a certified bound. TESTED: attacks were run. NOT_DONE: no given result
    answers it.
    """

    NOT_DONE = "not done"
    TESTED = "tested"
    PROVED = "proved"


class Deployment(Enum):
    """Who can use the model, and what they see of it."""

    PUBLIC_MODEL = "public-model"
    API = "api"
    INTERNAL = "internal"

    @property
    def attacker(self) -> str:
        """What an attacker has, in one sentence."""
        match self:
            case Deployment.PUBLIC_MODEL:
                return (
                    "The weights are public: everybody is a possible attacker, has the weights, and"
                    " has unlimited time."
                )
            case Deployment.API:
                return (
                    "The model answers queries: an attacker sees answers, not weights. Limits on"
                    " queries are not examined here."
                )
            case Deployment.INTERNAL:
                return (
                    "Staff use the model: an attacker is a person with access to the model file,"
                    " who may know people in the data."
                )

    @property
    def sees_weights(self) -> bool:
        """Whether attacks that need the weights (white-box) are possible."""
        return self is not Deployment.API


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a question comes from.

    Parameters
    ----------
    document : str
        The document.
    paragraph : str, default=""
        The article, section or control whose text was read; "": the text was not checked.
    """

    document: str
    paragraph: str = ""

    @property
    def is_checked(self) -> bool:
        """Whether the text was read there."""
        return bool(self.paragraph)

    @property
    def text(self) -> str:
        """The document with the paragraph, or with "text not checked"."""
        return f"{self.document}, {self.paragraph or _UNCHECKED}"


_UNCHECKED = "text not checked"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One question.

    Parameters
    ----------
    key : str
        Its name in JSON.
    title : str
        Its subject in a few words.
    question : str
        The question in plain words.
    source : Source
        Where it comes from.
    answer : str
        The name of the function of :mod:`expost.dossier.answers` that answers it.
    exempt : Mapping[Deployment, str]
        The deployments that it does not apply to, each with the reason.
    """

    key: str
    title: str
    question: str
    source: Source
    answer: str
    exempt: Mapping[Deployment, str]


def _gdpr(paragraph: str) -> Source:
    return Source(document="GDPR", paragraph=paragraph)


def _aisvs(paragraph: str) -> Source:
    return Source(document="OWASP AISVS 1.0", paragraph=paragraph)


_EDPB = Source(document="EDPB Opinion 28/2024")
_NIST = Source(document="NIST SP 800-226")
_ISO = Source(document="ISO/IEC 27559:2022")
_ICO = Source(document="ICO, motivated intruder test")
_NOT_PUBLIC = "the weights were not made public."


def _item(
    key: str,
    title: str,
    source: Source,
    answer: str,
    question: str,
    exempt: Mapping[Deployment, str] | None = None,
) -> Item:
    return Item(
        key=key,
        title=title,
        question=question,
        source=source,
        answer=answer,
        exempt=exempt or {},
    )


ITEMS = (
    # -- EDPB Opinion 28/2024 ----------------------------------------------------------------------
    _item(
        "edpb-likelihood",
        "Likelihood for any person",
        _EDPB,
        "likelihood",
        "How likely is it, at most, that data of any given person, not only of the average one, can"
        " be extracted from the model?",
    ),
    _item(
        "edpb-membership",
        "Membership inference",
        _EDPB,
        "membership",
        "Does the model resist membership inference?",
    ),
    _item(
        "edpb-attribute",
        "Attribute inference",
        _EDPB,
        "attribute_inference",
        "Does the model resist attribute inference: can an unknown attribute of a person be"
        " inferred from the person's presence in the training data?",
    ),
    _item(
        "edpb-reconstruction",
        "Reconstruction",
        _EDPB,
        "reconstruction",
        "Does the model resist reconstruction of rows of the training data?",
    ),
    _item(
        "edpb-inversion",
        "Model inversion",
        _EDPB,
        "inversion",
        "Does the model resist model inversion: can data of a person in the training data be"
        " computed from the model?",
    ),
    _item(
        "edpb-regurgitation",
        "Regurgitation",
        _EDPB,
        "regurgitation",
        "Can the model return rows of the training data as they were (regurgitation)?",
    ),
    _item(
        "edpb-exfiltration",
        "Exfiltration",
        _EDPB,
        "exfiltration",
        "Are the systems that hold the training data and the model protected from exfiltration?",
    ),
    _item(
        "edpb-documentation",
        "Documentation",
        _EDPB,
        "documentation",
        "Is the choice of data, measures and tests documented, with the impact assessment and the"
        " advice of the data protection officer?",
    ),
    # -- GDPR --------------------------------------------------------------------------------------
    _item(
        "gdpr-35-description",
        "Purposes and necessity",
        _gdpr("Art. 35(7)(a) and (b)"),
        "purposes",
        "What are the processing operations and their purposes, and are they necessary and"
        " proportionate?",
    ),
    _item(
        "gdpr-35-risks",
        "Risks of attacks",
        _gdpr("Art. 35(7)(c)"),
        "risks",
        "What risks of attacks does the model add for the people whose data was used?",
    ),
    _item(
        "gdpr-35-harm",
        "Other risks to people",
        _gdpr("Art. 35(7)(c)"),
        "other_harm",
        "Which other risks are there for people, whether or not their data was used?",
    ),
    _item(
        "gdpr-35-measures",
        "Technical measure",
        _gdpr("Art. 35(7)(d)"),
        "measures",
        "Which measure in the training of the model addresses the risks of attacks?",
    ),
    _item(
        "gdpr-35-organisation",
        "Measures of organisation",
        _gdpr("Art. 35(7)(d)"),
        "organisation",
        "Which measures of organisation address the risks?",
    ),
    _item(
        "gdpr-17-erasure",
        "Erasure from the model",
        _gdpr("Art. 17(1)"),
        "erasure",
        "If a person requests erasure, is the person's influence on the model erased too?",
    ),
    _item(
        "gdpr-17-copies",
        "Copies of the model",
        _gdpr("Art. 17(2)"),
        "copies",
        "If the model was made public, are others who hold a copy informed of a request for"
        " erasure?",
        {Deployment.API: _NOT_PUBLIC, Deployment.INTERNAL: _NOT_PUBLIC},
    ),
    # -- NIST SP 800-226 ---------------------------------------------------------------------------
    _item(
        "nist-unit",
        "Unit of privacy",
        _NIST,
        "unit",
        "What is the unit of privacy: a row or a person?",
    ),
    _item("nist-epsilon", "ε and δ", _NIST, "epsilon", "What are ε and δ?"),
    _item(
        "nist-composition",
        "All releases together",
        _NIST,
        "composition",
        "What is ε of all releases from the same data together?",
    ),
    _item("nist-algorithm", "Algorithm", _NIST, "algorithm", "Which algorithm adds the noise?"),
    _item(
        "nist-correctness",
        "Correctness",
        _NIST,
        "correctness",
        "Was the implementation validated: do attacks stay within the guarantee?",
    ),
    _item(
        "nist-bias",
        "Attacks by group",
        _NIST,
        "bias",
        "Do attacks succeed more often against some groups of people than against others?",
    ),
    _item(
        "nist-accuracy",
        "Accuracy by group",
        _NIST,
        "group_accuracy",
        "Is the model less accurate for some groups of people than for others?",
    ),
    _item(
        "nist-security",
        "Security and side channels",
        _NIST,
        "security",
        "Are side channels closed, such as the time that a computation takes?",
    ),
    _item(
        "nist-handling",
        "Data handling",
        _NIST,
        "handling",
        "How is the data collected, stored and accessed before a model is trained?",
    ),
    # -- ISO/IEC 27559 -----------------------------------------------------------------------------
    _item(
        "iso-worst-case",
        "Largest risk",
        _ISO,
        "worst_case",
        "Is the largest risk of any person stated, and not only the average?",
    ),
    _item(
        "iso-re-identification",
        "Re-identification",
        _ISO,
        "re_identification",
        "How likely is re-identification, at most?",
    ),
    _item(
        "iso-testing",
        "Adversarial testing",
        _ISO,
        "attacked",
        "Was the model tested by attacks that fit its use?",
    ),
    _item(
        "iso-governance",
        "Governance",
        _ISO,
        "governance",
        "Who may use the model and its results, who is responsible, and when is the assessment"
        " repeated?",
    ),
    # -- OWASP AISVS -------------------------------------------------------------------------------
    _item(
        "aisvs-rate-limits",
        "Rate limits",
        _aisvs("C11.2.2"),
        "rate_limits",
        "Are queries limited, with limits that follow from the threat of extraction?",
        {
            Deployment.PUBLIC_MODEL: "the weights are public, so there are no queries to limit.",
            Deployment.INTERNAL: "staff hold the model file, so there are no queries to limit.",
        },
    ),
    _item(
        "aisvs-training",
        "Training with differential privacy",
        _aisvs("C11.2.4"),
        "epsilon",
        "Is the model trained with differential privacy?",
    ),
    _item(
        "aisvs-simulation",
        "Simulated attacks",
        _aisvs("C11.2.5"),
        "simulated",
        "Do simulated membership inference attacks do no better than random guessing?",
    ),
    # -- ICO ---------------------------------------------------------------------------------------
    _item(
        "ico-intruder",
        "Motivated intruder",
        _ICO,
        "intruder",
        "Would a motivated intruder with ordinary means recognise a person?",
    ),
)
