"""Dossiers: what authorities and standards ask of a trained model, answered from stored results.

:mod:`expost.dossier.items` lists the questions, :func:`make_dossier` answers them and returns a
:class:`Dossier`. ``expost dossier`` is the same on the command line.
"""

from expost.dossier.dossier import Answered, Dossier, make_dossier
from expost.dossier.items import ITEMS, Deployment, Item, Source, Status

__all__ = [
    "ITEMS",
    "Answered",
    "Deployment",
    "Dossier",
    "Item",
    "Source",
    "Status",
    "make_dossier",
]
