"""Tables, their encoding as features, and the map of features into the unit ball."""

from expost.data._entries import LevelEntry, Mark, NumericEntry, Target
from expost.data._origins import files_of
from expost.data._query import Query
from expost.data._reading import encoding_template, missing_constants
from expost.data.encoding import MISSING, Encoded, Encoding, given_encoding, open_encoded
from expost.data.frames import is_frame
from expost.data.sources import Column, Kind, Table, open_table
from expost.data.unit_ball import UnitBall

__all__ = [
    "MISSING",
    "Column",
    "Encoded",
    "Encoding",
    "Kind",
    "LevelEntry",
    "Mark",
    "NumericEntry",
    "Query",
    "Table",
    "Target",
    "UnitBall",
    "encoding_template",
    "files_of",
    "given_encoding",
    "is_frame",
    "missing_constants",
    "open_encoded",
    "open_table",
]
