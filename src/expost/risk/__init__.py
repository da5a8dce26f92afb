"""ε in the words of those who ask: beliefs, advantages, error rates, '1 in k'; and back."""

from expost.risk.calibration import (
    noise_multiplier_for_advantage,
    noise_multiplier_for_belief,
    noise_multiplier_for_epsilon,
    noise_multiplier_for_one_in,
    noise_multiplier_for_true_positive_rate,
)
from expost.risk.composition import Composition, CompositionComparison, compare_compositions
from expost.risk.dpsgd import DPSGD
from expost.risk.forward import (
    advantage_from_epsilon,
    advantage_from_mu,
    belief_from_epsilon,
    belief_from_mu,
    epsilon_from_mu,
    one_in_from_epsilon,
    one_in_from_mu,
    true_positive_rate_from_epsilon,
    true_positive_rate_from_mu,
)
from expost.risk.guarantee import Guarantee
from expost.risk.inverse import (
    epsilon_from_advantage,
    epsilon_from_belief,
    epsilon_from_one_in,
    epsilon_from_true_positive_rate,
    mu_from_advantage,
    mu_from_belief,
    mu_from_epsilon,
    mu_from_one_in,
    mu_from_true_positive_rate,
)
from expost.risk.promises import EpsilonDelta, GaussianNoise, NormLaplaceNoise

__all__ = [
    "DPSGD",
    "Composition",
    "CompositionComparison",
    "EpsilonDelta",
    "GaussianNoise",
    "Guarantee",
    "NormLaplaceNoise",
    "advantage_from_epsilon",
    "advantage_from_mu",
    "belief_from_epsilon",
    "belief_from_mu",
    "compare_compositions",
    "epsilon_from_advantage",
    "epsilon_from_belief",
    "epsilon_from_mu",
    "epsilon_from_one_in",
    "epsilon_from_true_positive_rate",
    "mu_from_advantage",
    "mu_from_belief",
    "mu_from_epsilon",
    "mu_from_one_in",
    "mu_from_true_positive_rate",
    "noise_multiplier_for_advantage",
    "noise_multiplier_for_belief",
    "noise_multiplier_for_epsilon",
    "noise_multiplier_for_one_in",
    "noise_multiplier_for_true_positive_rate",
    "one_in_from_epsilon",
    "one_in_from_mu",
    "true_positive_rate_from_epsilon",
    "true_positive_rate_from_mu",
]
