"""A model card, and an entry of a registry of deployments, from released results.

Conventions
-----------
card        Markdown with YAML metadata, as README.md of a model repository on the Hugging Face Hub.
deployment  YAML for the Differential Privacy Deployments Registry (github.com/opendp/
            deployments-registry-data). Its fields and values are those of
            schemas/deployments-schema.yaml at the commit ``SCHEMA``.
public      Both hold what is public of every model (its guarantee, its mechanism and its size), and
            further figures only if the model, or the document they come from, is public.

What expost does not know is not filled in: the files name it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from expost.mechanisms.base import noise_title
from expost.mechanisms.statement import statements
from expost.numbers import number, symbols, upper_text
from expost.publishing.report import PublishedReport
from expost.release import Release
from expost.report.document import Document, one_line
from expost.report.markdown import escaped
from expost.risk.statement import Identifiability
from expost.types import Audience, Neighbouring

__all__ = ["SCHEMA", "ModelCard", "render_card", "render_deployment"]

# The commit whose schema and template were read.
SCHEMA = "057e5d81cf60150dd3307e0cf4504b957802fb3b"
_REVIEW = (
    "This model needs review before it is shared: something was read from its rows that its"
    " guarantee does not cover, or its noise was seeded, or it has no guarantee."
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a card shows.

    Parameters
    ----------
    release : Release
        The released model.
    answer : Identifiability
        What the guarantee of everything that was released allows.
    version : str
        The version of expost that writes the card.
    report : PublishedReport | None, default=None
        The published report of the model, if there is one.
    documents : tuple[Document, ...], default=()
        Public documents of other results.
    files : Mapping[str, str]
        The SHA-256 of each file that was read, by its name.
    name, license : str | None
        The name of the model and the identifier of its licence, if they are given.
    """

    release: Release
    answer: Identifiability
    version: str
    report: PublishedReport | None = None
    documents: tuple[Document, ...] = ()
    files: Mapping[str, str]
    name: str | None = None
    license: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether the model, and its report, are public."""
        results = (self.release, *(() if self.report is None else (self.report,)))
        return all(result.audience is Audience.PUBLIC for result in results)

    @property
    def spent(self) -> tuple[float, float] | None:
        """(ε, δ) of everything that was released; None without a guarantee."""
        scalars = self.release.scalars()
        epsilon, delta = scalars["epsilon"], scalars["delta"]
        if self.report is not None:
            epsilon, delta = self.report.spending.together
        is_guaranteed = not isinstance(epsilon, str) and epsilon < float("inf")
        return (float(epsilon), float(delta)) if is_guaranteed else None

    @property
    def shown_documents(self) -> tuple[Document, ...]:
        """The public documents."""
        return tuple(each for each in self.documents if each.audience is Audience.PUBLIC)

    @property
    def unit(self) -> str:
        """The unit of privacy, as NIST SP 800-226 names it."""
        return "user-level" if self.release.mechanism.rows_per_person > 1 else "record-level"

    @property
    def relation(self) -> str:
        """Neighbouring data sets, in words."""
        mechanism = self.release.mechanism
        most = mechanism.rows_per_person
        changed = "one row" if most == 1 else f"all rows of one person (at most {most:,})"
        replaced = mechanism.covers(Neighbouring.REPLACE)
        return f"{changed} {'removed, added or replaced' if replaced else 'removed or added'}"

    @property
    def description(self) -> str:
        """The model in a few words."""
        mechanism = self.release.mechanism
        return f"A linear model of {mechanism.rows} rows: {self.method}."

    @property
    def method(self) -> str:
        """The loss, the mechanism and the noise, in a few words."""
        mechanism = self.release.mechanism
        if not mechanism.is_private:
            return f"{mechanism.loss.name}, without noise"
        return f"{mechanism.title}, {noise_title(mechanism.noise)}"


# -- the model card --------------------------------------------------------------------------------


def render_card(card: ModelCard) -> str:
    """Return the model card, Markdown with YAML metadata.

    Parameters
    ----------
    card : ModelCard
        What it shows.

    Returns
    -------
    str
        The content of card.md.
    """
    title = "A model released with expost" if card.name is None else card.name
    lines = ["---", *_metadata(card), "---", "", f"# {escaped(one_line(title))}", ""]
    lines += [escaped(card.description), ""]
    if not card.is_public:
        lines += [f"> **{escaped(_REVIEW)}**", ""]
    lines += ["## Privacy", "", *_privacy(card), ""]
    if card.is_public:
        lines += _meaning(card.answer)
    for document in card.shown_documents:
        lines += [*_tiles(document)]
    lines += ["## Not filled in, and not checked", "", *(f"- {line}" for line in _open(card)), ""]
    lines += ["## Source", "", f"Written by expost {escaped(card.version)} from:", ""]
    lines += [f"- {escaped(name)}, SHA-256 `{digest}`" for name, digest in card.files.items()]
    return "\n".join(lines) + "\n"


def _metadata(card: ModelCard) -> Iterator[str]:
    """Yield the metadata of the Hub, and the guarantee under a key of its own."""
    if card.license is None:
        yield "# license: not known to expost; fill it in."
    else:
        yield f"license: {_scalar(card.license)}"
    yield "library_name: expost"
    is_classifier = card.release.mechanism.loss.is_classification
    yield f"pipeline_tag: tabular-{'classification' if is_classifier else 'regression'}"
    yield "tags:"
    yield from ("- expost", "- differential-privacy")
    yield "differential_privacy:"
    yield from _yaml(_figures(card), "  ")


def _figures(card: ModelCard) -> dict[str, Any]:
    scalars, spent = card.release.scalars(), card.spent
    figures: dict[str, Any] = {
        "epsilon": None if spent is None else spent[0],
        "delta": None if spent is None else spent[1],
        "unit": card.unit,
        "neighbouring": card.relation,
        "mechanism": scalars["mechanism"],
        "noise": scalars["noise"],
        "rows": scalars["n"],
        "needs_review": not card.is_public,
    }
    answer = card.answer
    if card.is_public and answer.gaussian_dp is not None:
        figures |= {
            "mu": answer.gaussian_dp,
            "mu_delta": answer.delta,
            "mu_error": answer.gaussian_dp_error,
        }
    return figures


def _privacy(card: ModelCard) -> Iterator[str]:
    spent = card.spent
    if spent is None:
        yield "No ε is guaranteed."
        return
    scalars = card.release.scalars()
    rows = [
        ("ε", number(spent[0], "up", 4)),
        ("δ", number(spent[1], "up")),
        ("unit of privacy", card.unit),
        ("neighbouring data sets", card.relation),
        ("mechanism", card.method),
        ("rows", f"{scalars['n']:,}"),
    ]
    yield from ("| | |", "|---|---|")
    yield from (f"| {escaped(name)} | {escaped(value)} |" for name, value in rows)
    if card.is_public:
        yield ""
        yield from (f"- {escaped(symbols(line))}" for line in _statements(card))


def _statements(card: ModelCard) -> tuple[str, ...]:
    report = card.report
    if report is None or report.budget is None:
        return statements(card.release.mechanism)
    model = ", ".join(upper_text(figure) for figure in report.spending.model)
    return (f"ε and δ are of the model, ({model}), and of its published report together.",)


def _meaning(answer: Identifiability) -> list[str]:
    lines = ["### What this allows an attacker", ""]
    lines += [f"- {escaped(symbols(one_line(each)))}" for each in answer.sentences]
    if answer.attacks:
        lines += ["", "### Attacks beyond membership", ""]
        lines += [f"- {escaped(symbols(one_line(each.sentence)))}" for each in answer.attacks]
        lines += ["", *(f"- {escaped(each.risk.assumption)}" for each in answer.attacks)]
    return [*lines, ""]


def _tiles(document: Document) -> list[str]:
    lines = [f"### {escaped(one_line(document.title))}", ""]
    lines += [
        f"- {escaped(tile.label)}: {escaped('; '.join((tile.value, *tile.lines)))}"
        for tile in document.tiles
    ]
    return [*lines, ""]


def _open(card: ModelCard) -> Iterator[str]:
    if card.license is None:
        yield "The licence."
    yield "Intended use, limitations, training data and contact: expost does not know them."
    yield (
        "Evaluation: expost publishes no figure that was measured on the data without noise, so"
        " there is no `model-index`."
    )
    yield (
        "Other releases from the same rows: their privacy losses add to this one (`expost ledger`)."
    )
    yield "Choices that were made by looking at the data before the release are not covered by ε."
    yield "Whether the Hub lists `expost` as a library was not checked."


# -- the registry ----------------------------------------------------------------------------------

# A field that expost does not know.
_UNKNOWN = object()


def render_deployment(card: ModelCard) -> str:
    """Return the entry of the registry, as YAML.

    Parameters
    ----------
    card : ModelCard
        What it states.

    Returns
    -------
    str
        The content of deployment.yaml.
    """
    head = [
        "# A draft of an entry of the Differential Privacy Deployments Registry,",
        "# github.com/opendp/deployments-registry-data, by its schema at commit",
        f"# {SCHEMA}.",
        f"# Written by expost {card.version} from released results. FILL IN marks fields that it",
        "# does not know. Whether the schema has changed since, and whether the registry accepts",
        "# the entry, was not checked.",
    ]
    if not card.is_public:
        head += [f"# {_REVIEW}"]
    return "\n".join([*head, *_yaml(_entry(card), "")]) + "\n"


def _entry(card: ModelCard) -> dict[str, Any]:
    spent, name = card.spent, card.name
    slug = None if name is None else _SEPARATORS.sub("-", name.lower()).strip("-")
    return {
        "url_slug": slug or _UNKNOWN,
        "deployment": {
            "basic": {
                "name": name or _UNKNOWN,
                "data_curators": _UNKNOWN,
                "description": card.description,
                "intended_use": _UNKNOWN,
                "data_product_type": "Machine learning model",
                "data_product_region": _UNKNOWN,
                "data_product_sector": _UNKNOWN,
                "publication_date": _UNKNOWN,
            },
            **({} if spent is None else _guarantee(card, spent)),
            "deployment_model": {
                "model_name": "Central",
                "actors": _UNKNOWN,
                "release_type": _UNKNOWN,
                "data_source_type": _UNKNOWN,
                "access_type": "Non-interactive",
                "access_type_details": "The parameters of the model are released, once drawn.",
            },
            "implementation": _implementation(card),
            "administrative": {"status": "Draft", "registry_authors": _UNKNOWN, "tier": 2},
        },
    }


def _guarantee(card: ModelCard, spent: tuple[float, float]) -> dict[str, Any]:
    epsilon, delta = spent
    mechanism, scalars = card.release.mechanism, card.release.scalars()
    unprotected = ["The number of rows."]
    if not card.is_public:
        unprotected.append("Constants that were read from the data without noise, if any.")
    details = [
        f"Neighbouring data sets: {card.relation}.",
        *(_statements(card) if card.is_public else ()),
    ]
    loss: dict[str, Any] = {
        "privacy_unit": card.unit,
        "privacy_unit_details": f"{card.relation[0].upper()}{card.relation[1:]}.",
    }
    # The number of persons is not part of a model.
    if mechanism.rows_per_person == 1:
        loss["number_of_privacy_units"] = scalars["n"]
    return {
        "dp_variant": {
            "variant_name": "Pure DP" if delta == 0 else "Approximate DP",
            "data_domain": f"Tables of {scalars['n']} rows, each clipped to a fixed norm.",
            "unprotected_quantities": " ".join(unprotected),
        },
        "privacy_loss": {
            **loss,
            "privacy_parameters": {"epsilon": epsilon, **({"delta": delta} if delta else {})},
            "privacy_parameters_details": " ".join(details),
        },
    }


def _implementation(card: ModelCard) -> dict[str, Any]:
    source = "a seed" if card.release.seeded else "the operating system"
    noise = (
        f"{card.method}, implemented by expost (the version that drew it is not recorded). The"
        f" noise was drawn from {source}; the parameters are released on a grid, against attacks on"
        " low-order bits."
    )
    return {
        "preprocessing_and_hyperparameter_tuning": _UNKNOWN,
        **({} if card.spent is None else {"mechanisms": noise, "composition": _composition(card)}),
        "post_processing": _UNKNOWN,
        "justification": _UNKNOWN,
        "utility": _UNKNOWN,
    }


def _composition(card: ModelCard) -> str:
    parts = ["the model"]
    if card.release.has_private_encoding:
        parts.append("its private encoding")
    if card.report is not None and card.report.budget is not None:
        parts.append("its published report")
    if len(parts) == 1:
        return "One release. Other releases from the same data are not included."
    return (
        f"The parameters are of {' and '.join(parts)} together. Other releases from the same data"
        " are not included."
    )


# -- YAML ------------------------------------------------------------------------------------------


def _yaml(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of nested mappings; what is not known is a comment."""
    for key, value in values.items():
        if value is _UNKNOWN:
            yield f"{indent}# {key}: FILL IN"
        elif isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Return a YAML scalar: strings quoted as in JSON, which YAML includes."""
    if isinstance(value, float):
        mantissa, power, exponent = repr(value).partition("e")
        # Without a point YAML 1.1 reads a string.
        return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}{power}{exponent}"
    return json.dumps(value)
