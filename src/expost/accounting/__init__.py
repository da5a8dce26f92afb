"""What a budget buys: ε, δ, the Gaussian mechanism and composition; the only importer of
dp_accounting."""

from expost.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_epsilon_below,
    gaussian_scale,
)

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_epsilon_below", "gaussian_scale"]
