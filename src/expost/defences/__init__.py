"""Comparison of defences against membership inference."""
