"""The catalogue of attacks.

An attack is a frozen dataclass in a module of this package (see
:class:`expost.auditing.evidence.Attack`). The command line, the report and the tests read its entry
in ``_CATALOGUE``.
"""

from expost.auditing.attacks.gradients import GRADIENT_INNER_PRODUCT, GRADIENT_NORM
from expost.auditing.attacks.lira import LiraOffline, LiraOnline
from expost.auditing.attacks.rmia import RmiaOffline, RmiaOnline
from expost.auditing.attacks.shadow import Shadow
from expost.auditing.attacks.thresholds import ClassThresholds, LossThreshold, Population
from expost.auditing.evidence import Attack, Evidence, Signal, missing

__all__ = ["ATTACKS", "available", "described"]

_CATALOGUE: tuple[Attack, ...] = (
    LossThreshold(),
    ClassThresholds(),
    Population(),
    Shadow(),
    LiraOffline(),
    LiraOnline(),
    RmiaOffline(),
    RmiaOnline(),
)
ATTACKS: dict[str, Attack] = {attack.name: attack for attack in _CATALOGUE}
# White-box scores, which the evidence holds if they can be computed.
SIGNALS = {signal.name: signal for signal in (GRADIENT_NORM, GRADIENT_INNER_PRODUCT)}


def available(evidence: Evidence) -> dict[str, Attack]:
    """Return the attacks of the catalogue that this evidence suffices for, in its order.

    Parameters
    ----------
    evidence : Evidence
        The outputs of the target and of its references.

    Returns
    -------
    dict[str, Attack]
        The attacks by their names.
    """
    return {name: attack for name, attack in ATTACKS.items() if missing(attack, evidence) is None}


def described(name: str) -> Attack | Signal:
    """Return the attack or the signal of this name.

    A name that is not listed is a signal that a caller passed. It counts as white-box, because it
    may need more than the model's answers.
    """
    if name in ATTACKS:
        return ATTACKS[name]
    unknown = Signal(name=name, description="a signal passed in addition to the model's answers")
    return SIGNALS.get(name, unknown)
