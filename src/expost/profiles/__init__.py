"""The privacy loss of every row: the verbs, their results and their figures."""
