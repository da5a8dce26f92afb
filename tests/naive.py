"""Formulas and minimisers written as plainly as they can be, for several tests."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr


def gaussian_delta(epsilon, mu):
    """δ(ε) of Gaussian noise whose centre a row moves by μ deviations (Balle and Wang 2018)."""
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def gaussian_scale(epsilon, delta, sensitivity=1.0):
    """σ of the analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""

    def excess(sigma):
        return gaussian_delta(epsilon, 1 / sigma) - delta

    return sensitivity * brentq(excess, 1e-3, 1e6, xtol=1e-14, rtol=1e-13)


def logistic_minimiser(X, y, regularization=0.1):
    """Newton on the mean logistic loss."""
    theta = np.zeros(X.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(y * (X @ theta)))
        gradient = -(X * (y * p)[:, None]).mean(axis=0) + regularization * theta
        hessian = (X * (p * (1 - p))[:, None]).T @ X / len(X)
        theta = theta - np.linalg.solve(hessian + regularization * np.eye(len(theta)), gradient)
    return theta
