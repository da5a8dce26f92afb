"""The choice of ε: sweep, utility, recommendation."""
