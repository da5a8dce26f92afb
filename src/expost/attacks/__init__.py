"""Membership inference: what real attacks get out of a model (lecture; Carlini et al. 2022)."""
