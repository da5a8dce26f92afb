"""Privacy guarantees: what they allow an attacker, and the noise that keeps a goal."""

from expost.risk.calibrate import calibrate
from expost.risk.composition import Composition, CompositionComparison, compare_compositions
from expost.risk.dpsgd import DPSGD
from expost.risk.epsilon_delta import EpsilonDelta
from expost.risk.gaussian import GaussianNoise
from expost.risk.gaussian_dp import GaussianDP, gaussian_dp
from expost.risk.guarantee import Guarantee
from expost.risk.norm_laplace import NormLaplaceNoise

__all__ = [
    "DPSGD",
    "Composition",
    "CompositionComparison",
    "EpsilonDelta",
    "GaussianDP",
    "GaussianNoise",
    "Guarantee",
    "NormLaplaceNoise",
    "calibrate",
    "compare_compositions",
    "gaussian_dp",
]
