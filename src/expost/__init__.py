"""expost."""
