"""Exposure by group: columns, groups, decision tree."""
