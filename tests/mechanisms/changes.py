"""Which rows change, as tests write it."""

import numpy as np

from expost.neighbouring.change import Change
from expost.types import Neighbouring

__all__ = ["changed", "neighbour", "of_persons"]


def changed(problem, relation=Neighbouring.REMOVE, entering=None):
    """The change of every row of an objective; a relation that only removes ignores ``entering``."""
    return Change.of(problem.held, relation, None if relation is Neighbouring.REMOVE else entering)


def of_persons(problem, persons):
    """All rows of each person leave."""
    return Change.of(problem.held, persons=persons)


def neighbour(X, y, entering, relation, row):
    """The neighbouring data set, written out."""
    if relation is not Neighbouring.ADD:
        X, y = np.delete(X, row, axis=0), np.delete(y, row)
    if relation is not Neighbouring.REMOVE:
        X, y = np.vstack([X, entering[0][row]]), np.append(y, entering[1][row])
    return X, y
