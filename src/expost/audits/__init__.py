"""Audits by attack: the verb, its result and its tables."""
