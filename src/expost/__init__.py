"""expost: the certified privacy loss of every training row of a released model.

Names are imported when they are first used, so that ``expost --help`` is quick. The rest of the
library is in documented sub-packages, such as :mod:`expost.mechanisms` and :mod:`expost.selection`.
"""

from __future__ import annotations

from importlib import import_module

# Not imported from typing, whose import takes as long as starting Python; mypy knows the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from expost import errors
    from expost.auditing.audit import audit
    from expost.auditing.result import Audit
    from expost.epsilon.choice import EpsilonChoice
    from expost.erasure.certificate import Erasure
    from expost.erasure.verb import forget
    from expost.estimators import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
    from expost.ledger import Ledger
    from expost.neighbouring.neighbours import neighbours
    from expost.profiles.identifiability import identifiability
    from expost.profiles.profile import Profile
    from expost.publishing.report import PublishedReport
    from expost.release import Release
    from expost.risk.statement import Identifiability
    from expost.verbs import choose_epsilon, profile, publish

    __version__: str

_CONTENTS = {
    "Audit": "auditing.result",
    "EpsilonChoice": "epsilon.choice",
    "Erasure": "erasure.certificate",
    "Identifiability": "risk.statement",
    "Ledger": "ledger",
    "PrivateLinearSVC": "estimators",
    "PrivateLogisticRegression": "estimators",
    "PrivateRidge": "estimators",
    "Profile": "profiles.profile",
    "PublishedReport": "publishing.report",
    "Release": "release",
    "audit": "auditing.audit",
    "choose_epsilon": "verbs",
    "forget": "erasure.verb",
    "identifiability": "profiles.identifiability",
    "neighbours": "neighbouring.neighbours",
    "profile": "verbs",
    "publish": "verbs",
}
_MODULES = (
    "accounting",
    "auditing",
    "conformance",
    "data",
    "dossier",
    "engine",
    "epsilon",
    "erasure",
    "errors",
    "glm",
    "ledger",
    "losses",
    "mechanisms",
    "neighbouring",
    "noise",
    "policy",
    "profiles",
    "publishing",
    "report",
    "risk",
    "rows",
    "selection",
    "torch",
    "types",
)

__all__ = [
    "Audit",
    "EpsilonChoice",
    "Erasure",
    "Identifiability",
    "Ledger",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "Profile",
    "PublishedReport",
    "Release",
    "__version__",
    "audit",
    "choose_epsilon",
    "errors",
    "forget",
    "identifiability",
    "neighbours",
    "profile",
    "publish",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name in _CONTENTS:
        value = getattr(import_module(f"expost.{_CONTENTS[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"expost.{name}")
    elif name == "__version__":
        value = import_module("importlib.metadata").version("expost")
    else:
        raise AttributeError(f"module 'expost' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_CONTENTS, *_MODULES, "__version__"])
