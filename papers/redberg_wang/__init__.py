"""Redberg and Wang (2021): the figures and claims, from made-up rows and credit card clients."""
