"""Evidence for tests: made up, of the Gaussian mean model, and of models trained on the spot."""

import numpy as np
from sklearn.metrics import roc_auc_score

from expost.auditing.evidence import LARGEST, Evidence
from expost.auditing.signals import confidence, confidence_of_losses, views


def balanced(rng, models, rows, share=0.5):
    """Each row in round(share · models) references, chosen for each row on its own."""
    return rng.random((models, rows)).argsort(axis=0) < round(share * models)


def evidence(
    confidence,
    references,
    inside,
    *,
    labels=None,
    population=None,
    population_labels=None,
    population_references=None,
    views=None,
    reference_views=None,
):
    """Evidence with what is not given left empty."""
    rows, models = len(confidence), len(references)
    strangers = 0 if population is None else len(population)

    def clipped(values, shape):
        values = np.zeros(shape) if values is None else values
        return np.clip(values, -LARGEST, LARGEST).astype(np.float32)

    def numbers(values, length):
        return np.zeros(length, np.int32) if values is None else values.astype(np.int32)

    return Evidence(
        confidence=clipped(confidence, rows),
        labels=numbers(labels, rows),
        references=clipped(references, (models, rows)),
        inside=inside,
        population=clipped(population, strangers),
        population_labels=numbers(population_labels, strangers),
        population_references=clipped(population_references, (models, strangers)),
        views=np.zeros((rows, 0), np.float32) if views is None else views,
        reference_views=(
            np.zeros((0, rows, 0), np.float32) if reference_views is None else reference_views
        ),
    )


def made_up(seed, *, rows=40, models=12, strangers=30, classes=3, share=0.5):
    """Members are lifted by 1 over noise whose level and spread differ by row."""
    rng = np.random.default_rng(seed)
    inside = balanced(rng, models, rows, share)
    truth = rng.random(rows) < 0.5
    level, spread = rng.normal(size=rows), rng.gamma(4, 0.25, size=rows)

    def answers(member):
        return level + spread * rng.normal(size=member.shape) + 1.0 * member

    return evidence(
        answers(truth),
        answers(inside),
        inside,
        labels=rng.integers(0, classes, rows),
        population=rng.normal(size=strangers),
        population_labels=rng.integers(0, classes, strangers),
        population_references=rng.normal(size=(models, strangers)),
        views=rng.random((rows, 2)).astype(np.float32),
        reference_views=rng.random((models, rows, 2)).astype(np.float32),
    ), truth


def area_of(scores, truth):
    """The share of pairs in order, a tie counting one half."""
    return float(roc_auc_score(truth, scores))


def mean_game(
    rng, *, rows=400, dimensions=4000, models=64, effect=1.2, lengths=None, strangers=500
):
    """The released mean of a random half of the rows plus noise, and the likelihood ratio.

    θ = (2/n) Σ bⱼ xⱼ + N(0, s² I) with fair coins b and xⱼ ~ N(0, I/d) (times ``lengths``); s such
    that a row of length 1 moves x·θ by ``effect`` standard deviations of the noise. The loss of
    a row is ∥x − θ∥²/2, minus the log of the normal density around θ over its peak.

    Given every row, θ with b_i = 1 and with b_i = 0 has means 2x_i/n apart and, the other coins
    being many and small beside the noise, the normal law with covariance
    S_i = s² I + Σ_{j≠i} xⱼxⱼᵀ/n². The log likelihood ratio of the coin is then
    (2/n) x_iᵀ S_i⁻¹ (θ − μ), μ = Σ xⱼ/n: what an attacker who sees all of θ can do at best.
    """
    X = rng.normal(size=(rows, dimensions)) / np.sqrt(dimensions)
    if lengths is not None:
        X *= lengths[:, None]
    others = rng.normal(size=(strangers, dimensions)) / np.sqrt(dimensions)
    noise = 2 / (rows * effect)
    truth = rng.random(rows) < 0.5
    inside = balanced(rng, models, rows)
    theta = (np.vstack([truth, inside]) @ X) * (2 / rows)
    theta += noise * rng.normal(size=theta.shape)

    def answers(Z):
        squares = (Z**2).sum(axis=1) - 2 * theta @ Z.T + (theta**2).sum(axis=1)[:, None]
        return confidence_of_losses(0.5 * np.maximum(squares, 0))

    own_answers, strange = answers(X), answers(others)
    made = evidence(
        own_answers[0],
        own_answers[1:],
        inside,
        population=strange[0],
        population_references=strange[1:],
    )
    return made, truth, mean_log_ratio(X, theta[0], noise)


def mean_log_ratio(X, theta, noise):
    """X S⁻¹ = (s² I + X Xᵀ/n²)⁻¹ X; the row's own term is taken out by Sherman and Morrison."""
    rows = len(X)
    products = X @ X.T
    inner = np.linalg.inv(noise**2 * np.eye(rows) + products / rows**2)
    leverage = np.einsum("ij,ij->i", inner, products) / rows**2
    return (2 / rows) * (inner @ (X @ (theta - X.sum(axis=0) / rows))) / (1 - leverage)


def trained_game(make, X, y, *, models, strangers, seed, null=False):
    """``make(seed).fit`` on random halves; with ``null`` the target is trained on strangers alone."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    kept, others = order[strangers:], order[:strangers]
    if null:
        fresh, others = others[: strangers // 2], others[strangers // 2 :]
    rows = len(kept)
    truth = rng.random(rows) < 0.5
    inside = balanced(rng, models, rows)
    answers = []
    for number, member in enumerate(np.vstack([truth, inside])):
        chosen = fresh if null and number == 0 else kept[member]
        model = make(seed + number).fit(X[chosen], y[chosen])
        answers.append([_answer(model, X[part], y[part]) for part in (kept, others)])
    own_answers, strange = ([answer[part] for answer in answers] for part in (0, 1))
    made = evidence(
        own_answers[0][0],
        np.array([phi for phi, _ in own_answers[1:]]),
        inside,
        labels=y[kept],
        population=strange[0][0],
        population_labels=y[others],
        population_references=np.array([phi for phi, _ in strange[1:]]),
        views=own_answers[0][1],
        reference_views=np.array([view for _, view in own_answers[1:]]),
    )
    return made, truth


def _answer(model, X, y):
    probabilities = model.predict_proba(X)
    return confidence(probabilities, y), views(probabilities)
