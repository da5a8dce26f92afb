"""Tests of the papers that need torch."""
