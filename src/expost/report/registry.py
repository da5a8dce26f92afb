"""The document of every kind of result.

A result is described in one module of :mod:`expost.report.sections`. Modules are named by strings
and imported when a result of their kind is shown: a page without an audit imports no attack.
"""

import inspect
import platform
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, cast

from expost.errors import InvalidInput
from expost.report.compare import compared
from expost.report.document import Context, Document, Page

__all__ = ["document_of", "installed", "page_of"]

_PACKAGES = ("expost", "numpy", "scipy", "scikit-learn")
# The class of a result, the module of its sections, and the function that describes it.
_DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "expost.profiles.profile.Profile": ("profile", "profile_document"),
    "expost.profiles.posterior.RowIdentifiability": ("posterior", "posterior_document"),
    "expost.epsilon.choice.EpsilonChoice": ("epsilon", "epsilon_document"),
    "expost.publishing.report.PublishedReport": ("published", "published_document"),
    "expost.publishing.lookup.Answer": ("published", "answer_document"),
    "expost.publishing.compare.Comparison": ("row_results", "comparison_document"),
    "expost.ledger.Ledger": ("ledger", "ledger_document"),
    "expost.ledger.Listing": ("ledger", "listing_document"),
    "expost.erasure.certificate.Certificate": ("erasure", "certificate_document"),
    "expost.erasure.certificate.Erasure": ("erasure", "erasure_document"),
    "expost.mechanisms.dpsgd.Transcript": ("training", "training_document"),
    # Named by strings, so that torch is not imported.
    "expost.torch.tracking.Tracker": ("training", "training_document"),
    "expost.torch.training.Training": ("training", "training_document"),
    "expost.conformance.result.Conformance": ("conformance", "conformance_document"),
    "expost.policy.verdicts.PolicyCheck": ("policy", "policy_document"),
    "expost.dossier.dossier.Dossier": ("dossier", "dossier_document"),
    "expost.risk.statement.Identifiability": ("risk", "risk_document"),
    "expost.risk.curves.RiskCurves": ("risk", "curves_document"),
    "expost.risk.composition.CompositionComparison": ("composition", "composition_document"),
    "expost.groups.exposure.Grouping": ("groups", "groups_document"),
    "expost.groups.exposure.Explanation": ("groups", "groups_document"),
    "expost.release.Release": ("small", "release_document"),
    "expost.neighbouring.neighbours.Neighbours": ("row_results", "neighbours_document"),
    "expost.mechanisms.row_losses.RowLosses": ("row_results", "row_losses_document"),
    "expost.epsilon.row_figures.EstimatedLosses": ("row_results", "estimated_losses_document"),
    "expost.profiles.transcript.IndividualEpsilon": ("row_results", "individual_epsilon_document"),
    "expost.noise.coverage.Coverage": ("small", "coverage_document"),
    "expost.selection.private.SelectionCost": ("small", "selection_cost_document"),
    "expost.selection.tuning.SelectedRegularization": (
        "small",
        "selected_regularization_document",
    ),
    "expost.auditing.result.Audit": ("audit", "audit_document"),
    "expost.auditing.sweep.AuditSweep": ("audits", "audits_document"),
    "expost.auditing.lower_bounds.LowerBound": ("attacks", "lower_bound_document"),
    "expost.auditing.roc.AttackFigures": ("attacks", "attack_figures_document"),
    "expost.auditing.roc.Roc": ("attacks", "roc_document"),
    "expost.auditing.disparity.Disparity": ("attacks", "disparity_document"),
}


def document_of(result: Any, context: Context | None = None, **options: Any) -> Document:
    """Return the document of a result.

    Parameters
    ----------
    result : object
        A result of one of expost's verbs.
    context : Context, optional
        Settings, notices, a file name and a date to show.
    **options : Any
        Further options of the document of this kind of result.

    Returns
    -------
    Document
        Its sections, alerts and settings.
    """
    document: Document = _description(result)(result, **options)
    return document.within(context)


def page_of(
    *results: Any,
    context: Context | None = None,
    versions: Mapping[str, str] | None = None,
    **options: Any,
) -> Page:
    """Return a page of results, each of another kind.

    Parameters
    ----------
    *results : Any
        Results of expost's verbs.
    context : Context, optional
        What the caller adds. It goes to the first result that is not public, if there is one,
        because settings and notices may depend on the data.
    versions : Mapping[str, str], optional
        Versions of packages by name; None: those that are installed.
    **options : Any
        Options for each result whose description takes them.

    Returns
    -------
    Page
        The page.

    Raises
    ------
    InvalidInput
        If there is no result, or two of one kind.
    """
    documents = [document_of(result, **_accepted(result, options)) for result in results]
    if not documents:
        raise InvalidInput("page: has no document; give at least one result.")
    private = [at for at, document in enumerate(documents) if document.audience.value != "public"]
    first = (*private, 0)[0]
    documents[first] = documents[first].within(context)
    named = installed() if versions is None else versions
    return compared(Page(documents=tuple(documents), versions=tuple(named.items())))


def _description(result: Any) -> Callable[..., Document]:
    """Return the function that describes results of this kind."""
    for cls in type(result).__mro__:
        described = _DOCUMENTS.get(f"{cls.__module__}.{cls.__qualname__}")
        if described is not None:
            module, function = described
            described_by = getattr(import_module(f"expost.report.sections.{module}"), function)
            return cast(Callable[..., Document], described_by)
    raise InvalidInput(
        f"results: cannot report a {type(result).__name__}; give profiles, choices of ε, audits or"
        " other results of expost."
    )


def _accepted(result: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    names = inspect.signature(_description(result)).parameters
    return {name: value for name, value in options.items() if name in names}


def installed() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
