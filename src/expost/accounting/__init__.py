"""Accounting of ε and δ: the Gaussian mechanism and composition."""

from expost.accounting.gaussian import (
    gaussian_delta,
    gaussian_deltas,
    gaussian_epsilon,
    gaussian_epsilon_below,
    gaussian_scale,
)
from expost.accounting.laws import NormLaplaceStep, RandomizedResponse, SampledGaussian, StepLaw
from expost.accounting.pld import PrivacyLoss
from expost.accounting.rdp import mironov_epsilon, renyi_divergence, tight_epsilon

__all__ = [
    "NormLaplaceStep",
    "PrivacyLoss",
    "RandomizedResponse",
    "SampledGaussian",
    "StepLaw",
    "gaussian_delta",
    "gaussian_deltas",
    "gaussian_epsilon",
    "gaussian_epsilon_below",
    "gaussian_scale",
    "mironov_epsilon",
    "renyi_divergence",
    "tight_epsilon",
]
