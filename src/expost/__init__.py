"""expost: how much one released model gives each training row away.

Everything is imported when it is first asked for, so that ``expost --help`` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expost._audit import audit, audit_arrays
    from expost._audit_result import Audit
    from expost._audit_sweep import AuditSweep, audit_sweep
    from expost._blackbox import BlackBox
    from expost._choice import EpsilonChoice
    from expost._coverage import Coverage, empirical_coverage
    from expost._defence import Defence, LogisticDefence
    from expost._defence_table import DefenceTable
    from expost._defences import compare_defences
    from expost._epsilon import choose_epsilon
    from expost._identifiability import identifiability
    from expost._ledger import Ledger, list_release
    from expost._neighbours import Neighbours, neighbours
    from expost._privacy_profile import PrivacyProfile
    from expost._profile import profile
    from expost._profile_stream import profile_stream
    from expost._publish import publish
    from expost._published import PublishedReport
    from expost._row_identifiability import RowIdentifiability
    from expost._sampled import EstimatedLosses, SampledMechanism
    from expost._selection import (
        SelectionCost,
        select_privately,
        selection_cost,
        selection_probabilities,
    )
    from expost._streamed_result import StreamedProfile
    from expost._tuning import SelectedRegularization, select_regularization
    from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
    from expost.mechanisms import ObjectivePerturbation, OutputPerturbation, Release
    from expost.mechanisms.publishing import PublishingBudget
    from expost.risk.answer import Identifiability
    from expost.types import Audience, Neighbouring

_CONTENTS = {
    "Audience": "types",
    "Audit": "_audit_result",
    "AuditSweep": "_audit_sweep",
    "BlackBox": "_blackbox",
    "Coverage": "_coverage",
    "Defence": "_defence",
    "DefenceTable": "_defence_table",
    "EpsilonChoice": "_choice",
    "EstimatedLosses": "_sampled",
    "Identifiability": "risk.answer",
    "Ledger": "_ledger",
    "LogisticDefence": "_defence",
    "Neighbouring": "types",
    "Neighbours": "_neighbours",
    "ObjectivePerturbation": "mechanisms",
    "OutputPerturbation": "mechanisms",
    "PrivacyProfile": "_privacy_profile",
    "PrivateLinearSVC": "estimators",
    "PrivateLogisticRegression": "estimators",
    "PrivateRidge": "estimators",
    "PublishedReport": "_published",
    "PublishingBudget": "mechanisms.publishing",
    "Release": "mechanisms",
    "RowIdentifiability": "_row_identifiability",
    "SampledMechanism": "_sampled",
    "SelectedRegularization": "_tuning",
    "SelectionCost": "_selection",
    "StreamedProfile": "_streamed_result",
    "audit": "_audit",
    "audit_arrays": "_audit",
    "audit_sweep": "_audit_sweep",
    "choose_epsilon": "_epsilon",
    "compare_defences": "_defences",
    "empirical_coverage": "_coverage",
    "identifiability": "_identifiability",
    "list_release": "_ledger",
    "neighbours": "_neighbours",
    "profile": "_profile",
    "profile_stream": "_profile_stream",
    "publish": "_publish",
    "select_privately": "_selection",
    "select_regularization": "_tuning",
    "selection_cost": "_selection",
    "selection_probabilities": "_selection",
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
    "PrivacyProfile",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PublishedReport",
    "PublishingBudget",
    "Release",
    "RowIdentifiability",
    "SampledMechanism",
    "SelectedRegularization",
    "SelectionCost",
    "StreamedProfile",
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
    "profile_stream",
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
