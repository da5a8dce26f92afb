"""expost: how much one released model gives each training row away.

Everything is imported when it is first asked for, so that ``expost --help`` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expost.audits.audit import audit, audit_arrays
    from expost.audits.result import Audit
    from expost.audits.sweep import AuditSweep, audit_sweep
    from expost.defences.compare import compare_defences
    from expost.defences.defence import Defence, LogisticDefence
    from expost.defences.table import DefenceTable
    from expost.epsilon.black_box import BlackBox
    from expost.epsilon.choice import EpsilonChoice
    from expost.epsilon.choose import choose_epsilon
    from expost.epsilon.sampled import EstimatedLosses, SampledMechanism
    from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
    from expost.ledger import Ledger, list_release
    from expost.mechanisms import ObjectivePerturbation, OutputPerturbation
    from expost.mechanisms.publishing import PublishingBudget
    from expost.neighbouring.neighbours import Neighbours, neighbours
    from expost.noise.coverage import Coverage, empirical_coverage
    from expost.profiles.identifiability import identifiability
    from expost.profiles.posterior import RowIdentifiability
    from expost.profiles.profile import Profile
    from expost.publishing.publish import publish
    from expost.publishing.report import PublishedReport
    from expost.release import Release
    from expost.risk.answer import Identifiability
    from expost.selection.private import (
        SelectionCost,
        select_privately,
        selection_cost,
        selection_probabilities,
    )
    from expost.selection.tuning import SelectedRegularization, select_regularization
    from expost.types import Audience, Neighbouring
    from expost.verbs import profile

_CONTENTS = {
    "Audience": "types",
    "Audit": "audits.result",
    "AuditSweep": "audits.sweep",
    "BlackBox": "epsilon.black_box",
    "Coverage": "noise.coverage",
    "Defence": "defences.defence",
    "DefenceTable": "defences.table",
    "EpsilonChoice": "epsilon.choice",
    "EstimatedLosses": "epsilon.sampled",
    "Identifiability": "risk.answer",
    "Ledger": "ledger",
    "LogisticDefence": "defences.defence",
    "Neighbouring": "types",
    "Neighbours": "neighbouring.neighbours",
    "ObjectivePerturbation": "mechanisms",
    "OutputPerturbation": "mechanisms",
    "Profile": "profiles.profile",
    "PrivateLinearSVC": "estimators",
    "PrivateLogisticRegression": "estimators",
    "PrivateRidge": "estimators",
    "PublishedReport": "publishing.report",
    "PublishingBudget": "mechanisms.publishing",
    "Release": "release",
    "RowIdentifiability": "profiles.posterior",
    "SampledMechanism": "epsilon.sampled",
    "SelectedRegularization": "selection.tuning",
    "SelectionCost": "selection.private",
    "audit": "audits.audit",
    "audit_arrays": "audits.audit",
    "audit_sweep": "audits.sweep",
    "choose_epsilon": "epsilon.choose",
    "compare_defences": "defences.compare",
    "empirical_coverage": "noise.coverage",
    "identifiability": "profiles.identifiability",
    "list_release": "ledger",
    "neighbours": "neighbouring.neighbours",
    "profile": "verbs",
    "publish": "publishing.publish",
    "select_privately": "selection.private",
    "select_regularization": "selection.tuning",
    "selection_cost": "selection.private",
    "selection_probabilities": "selection.private",
}
_MODULES = (
    "accounting",
    "attacks",
    "data",
    "datasets",
    "errors",
    "glm",
    "losses",
    "mechanisms",
    "noise",
    "risk",
    "torch",
)

__all__ = [
    "Audience",
    "Audit",
    "AuditSweep",
    "BlackBox",
    "Coverage",
    "Defence",
    "DefenceTable",
    "EpsilonChoice",
    "EstimatedLosses",
    "Identifiability",
    "Ledger",
    "LogisticDefence",
    "Neighbouring",
    "Neighbours",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "Profile",
    "PublishedReport",
    "PublishingBudget",
    "Release",
    "RowIdentifiability",
    "SampledMechanism",
    "SelectedRegularization",
    "SelectionCost",
    "audit",
    "audit_arrays",
    "audit_sweep",
    "choose_epsilon",
    "compare_defences",
    "empirical_coverage",
    "identifiability",
    "list_release",
    "neighbours",
    "profile",
    "publish",
    "select_privately",
    "select_regularization",
    "selection_cost",
    "selection_probabilities",
]


def __getattr__(name: str) -> Any:
    if name in _CONTENTS:
        value = getattr(import_module(f"expost.{_CONTENTS[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"expost.{name}")
    else:
        raise AttributeError(f"module 'expost' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_CONTENTS, *_MODULES])
