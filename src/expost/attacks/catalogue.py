"""Every attack that needs no more than the evidence, by name."""

from expost.attacks.evidence import Attack, Evidence, missing
from expost.attacks.lira import LiraOffline, LiraOnline
from expost.attacks.rmia import RmiaOffline, RmiaOnline
from expost.attacks.shadow import Shadow
from expost.attacks.thresholds import ClassThresholds, LossThreshold, Population

__all__ = ["ATTACKS", "available"]

_ALL: tuple[Attack, ...] = (
    LossThreshold(),
    ClassThresholds(),
    Population(),
    Shadow(),
    LiraOffline(),
    LiraOnline(),
    RmiaOffline(),
    RmiaOnline(),
)
ATTACKS: dict[str, Attack] = {attack.name: attack for attack in _ALL}


def available(evidence: Evidence) -> dict[str, Attack]:
    """The attacks of the catalogue that this evidence suffices for, in its order."""
    return {name: attack for name, attack in ATTACKS.items() if missing(attack, evidence) is None}
