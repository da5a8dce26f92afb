"""Which rows change, as tests write it."""

from expost.neighbouring.change import Change
from expost.types import Neighbouring

__all__ = ["changed", "of_persons"]


def changed(problem, relation=Neighbouring.REMOVE, entering=None):
    """The change of every row of an objective; a relation that only removes ignores ``entering``."""
    return Change.of(problem.held, relation, None if relation is Neighbouring.REMOVE else entering)


def of_persons(problem, persons):
    """All rows of each person leave."""
    return Change.of(problem.held, persons=persons)
