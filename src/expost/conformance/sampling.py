"""The checks of a trainer's batches: Poisson sampling, empty batches, the accountant."""

import numpy as np
from scipy import stats

from expost.conformance.checks import between, conforming, not_checked, violation
from expost.conformance.evidence import SHORT, Evidence, contains
from expost.conformance.result import Finding, Verdict
from expost.conformance.statistics import (
    count_quantiles,
    law_p_value,
    mean_interval,
    normal_scores,
    successive_p_value,
    uniform_p_value,
)
from expost.conformance.tasks import (
    FREE,
    GROUPS,
    SAMPLED_GROUPS,
    STARTS,
    Run,
    gradient_of,
    unit,
)
from expost.mechanisms.dpsgd import SGDMechanism
from expost.numbers import figure, number
from expost.types import FloatArray, Neighbouring

__all__ = ["SAMPLING_CHECKS"]

_FULL = "Every batch is claimed to have all rows (sampling_rate = 1)."
# The share of ε by which an accountant may be below ours: the numerical errors of both.
_ACCOUNTANT_ERROR = 0.01


def _counts(evidence: Evidence, run: Run, each: float) -> tuple[FloatArray, float]:
    """Return (steps, 1 + groups) the sampled rows of all and of each group, and their noise.

    A row adds ``each`` to a coordinate.
    """
    factor, noise = _scales(evidence, run)
    return run.sums[:, : 1 + SAMPLED_GROUPS] / (factor * each), noise / each


def _scales(evidence: Evidence, run: Run) -> tuple[float, float]:
    """Return the factor of V, and the standard deviation of the noise over it.

    Exact if the divisor is as claimed; else V is scaled by the factor that was measured.
    """
    factor = evidence.factor_of(run)
    middle = 1.0 if contains(factor, 1.0) else sum(factor) / 2
    right = contains(evidence.noise_factor, 1.0)
    noise = evidence.claims.noise_scale
    if not right:
        noise = float(np.sqrt(np.mean(np.square(run.free)))) / middle
    return middle, noise


def sampling(evidence: Evidence) -> Finding:
    """Compare the numbers of sampled rows with binomial laws, and those of successive steps."""
    name, run, claims = "sampling", evidence.sampled, evidence.claims
    if run is None:
        return not_checked(name, _FULL)
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    counts, noise = _counts(evidence, run, unit(claims))
    total, groups = counts[:, 0], counts[:, 1:]
    rate, rows = claims.sampling_rate, run.rows
    each = rows // SAMPLED_GROUPS
    of_all = count_quantiles(total, rows, rate, noise)
    by_group = np.stack([count_quantiles(g, each, rate, noise) for g in groups.T], axis=1)
    p_values = {"sizes": law_p_value(of_all), "groups": law_p_value(by_group.ravel())}
    lags = [successive_p_value(normal_scores(q)) for q in (by_group, of_all[:, None])]
    correlation, least = min(lags, key=lambda pair: pair[1])
    p_values["successive_steps"] = min(1.0, len(lags) * least)
    epoch = round(1 / rate)
    epochs = len(total) // epoch
    if epoch > 1 and epochs >= 8:
        sums = total[: epochs * epoch].reshape(epochs, epoch).sum(axis=1)
        quantiles = count_quantiles(sums, rows * epoch, rate, noise * np.sqrt(epoch))
        p_values["epochs"] = law_p_value(quantiles)
    low, high = mean_interval(total / rows, evidence.level)
    sizes = float(np.std(total, ddof=1))
    expected = float(np.sqrt(rows * rate * (1 - rate) + noise**2))
    figures = {"rate_low": low, "rate_high": high, "spread": sizes, "expected_spread": expected}
    figures |= {f"p_value_of_{of}": value for of, value in p_values.items()}
    figures["correlation_of_successive_steps"] = correlation
    measured = (
        f"Sampling rate {between((low, high))}; the sizes of batches, with noise, have a standard"
        f" deviation of {number(sizes)} rows ({number(expected)} expected)"
    )
    if not rows * rate * (1 - rate) > noise**2 / 2:
        measured += "; so much noise would hide batches of a fixed size"
    wrong = [of for of, value in p_values.items() if value < evidence.level / 4]
    if not wrong:
        return conforming(name, f"{measured}.", **figures)
    means = {
        "sizes": "the sizes of batches are not binomial",
        "groups": "the numbers of rows of each group are not binomial",
        "epochs": "the numbers of rows of an epoch are not binomial",
        "successive_steps": "the numbers of rows of successive steps have a correlation of"
        f" {number(correlation)}",
    }
    return violation(
        name,
        f"{measured}; {number(rate)} is claimed; {means[wrong[0]]}"
        f" (p = {figure(p_values[wrong[0]])}).",
        meaning="Amplification by sampling assumes that each row is in a batch with probability q,"
        " independently of all other rows and steps. Shuffled batches, or batches of a fixed size,"
        " have another and possibly larger ε.",
        remedy="Sample each row independently at every step (Poisson sampling), or account for the"
        " sampling in use.",
        **figures,
    )


def sampled_clipping(evidence: Evidence) -> Finding:
    """Compare what rows of each length add to sampled batches with their clipped gradients."""
    name, run, claims = "sampled clipping", evidence.grouped, evidence.claims
    if run is None:
        return not_checked(name, _FULL)
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    if sampling(evidence).verdict is Verdict.VIOLATES:
        return not_checked(name, "Batches are not sampled as claimed: correct that first.")
    lengths, p_values = _contributions(evidence, run)
    figures = {f"length_{at}": length for at, length in lengths.items()}
    # Half of the level is that of the factor.
    wrong = {at: p for at, p in p_values.items() if p < evidence.level / (2 * len(GROUPS))}
    figures["p_value"] = min(1.0, len(GROUPS) * min(p_values.values()))
    worst = max(wrong or lengths, key=lambda at: (not GROUPS[at].opposite, GROUPS[at].length))
    group = GROUPS[worst]
    turned = ", a third of them in the opposite direction," if group.opposite else ""
    text = (
        f"Where batches are sampled, rows with gradients of {number(group.length)} C{turned}"
        f" contribute {number(lengths[worst])} C each"
    )
    if not wrong:
        return conforming(name, f"{text}.", **figures)
    expected = np.linalg.norm(claims.clipped(gradient_of(group, claims))) / claims.bound
    harmless = all(at < SHORT for at in wrong)
    return violation(
        name,
        f"{text}; {number(float(expected))} C is claimed.",
        weakens=not harmless,
        meaning="The trainer does not clip sampled batches as claimed, but no row contributes more"
        " than C: the guarantee holds."
        if harmless
        else "In a sampled batch one row can move the sum by something else than its gradient,"
        " clipped to C: the noise is not calibrated to what a row contributes.",
        remedy="Clip the gradient of each row before the sum, in every batch: g·min(1, C/∥g∥).",
        **figures,
    )


def _contributions(evidence: Evidence, run: Run) -> tuple[dict[int, float], dict[int, float]]:
    """Return what a row of each group contributes, over C, and the p-value of each group.

    Over all steps a coordinate of a group is a number of sampled rows, times a clipped gradient,
    plus noise. A p-value counts once for each layer.
    """
    claims, steps = evidence.claims, len(run.sums)
    factor, noise = _scales(evidence, run)
    lengths, p_values = {}, {}
    for at, group in enumerate(GROUPS):
        clipped = claims.clipped(gradient_of(group, claims))[0]
        rows = steps * evidence.grouped_members
        # A third of the rows of an opposite group is clipped to the opposite vector.
        opposite = rows // 3 if group.opposite else 0
        means, tails = [], []
        for layer, part in enumerate(group.parts):
            if not part:
                continue
            each = float(clipped[STARTS[layer] + at])
            total = np.sum(run.sums[:, [STARTS[layer] + at]], axis=0) / (factor * each)
            spread = noise / each * np.sqrt(steps)
            quantile = float(
                count_quantiles(total, rows - opposite, claims.sampling_rate, spread, opposite)[0]
            )
            tails.append(2 * min(quantile, 1 - quantile))
            means.append(each * float(total[0]) / (claims.sampling_rate * (rows - 2 * opposite)))
        lengths[at] = float(np.linalg.norm(means)) / claims.bound
        p_values[at] = min(1.0, len(tails) * min(tails))
    return lengths, p_values


def empty_batches(evidence: Evidence) -> Finding:
    """Check that a step on an empty batch is made, with noise, like any other."""
    name, run, claims = "empty batches", evidence.few, evidence.claims
    if run is None:
        return not_checked(name, _FULL)
    remedy = "Make a step of noise alone if a batch is empty, and count it."
    if not isinstance(run, Run):
        return violation(
            name,
            f"With few rows, so that batches are empty: {run}",
            weakens=False,
            meaning="The training ends when a batch is empty, which reveals that no row was in it.",
            remedy=remedy,
        )
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    if not np.all(np.isfinite(run.sums)):
        text = f"After an empty batch of {run.rows} rows the parameters are not finite."
        return violation(name, text, meaning="It shows that no row was sampled.", remedy=remedy)
    squares = np.sum(np.square(run.free), axis=1) / np.mean(np.square(run.free))
    steady = uniform_p_value(stats.chi2.cdf(squares, len(FREE)))
    counts, noise = _counts(evidence, run, unit(claims) * np.sqrt(2))
    law = law_p_value(count_quantiles(counts[:, 0], run.rows, claims.sampling_rate, noise))
    figures = {"p_value_of_noise": steady, "p_value_of_counts": law}
    without = int(np.sum(squares < len(FREE) / 100))
    figures["steps_without_noise"] = without
    empty = (1 - claims.sampling_rate) ** run.rows
    if not without and min(steady, law) >= evidence.level / 2:
        text = f"Steps of {run.rows} rows, {number(100 * empty)} % of them empty, have noise."
        return conforming(name, text, **figures)
    return violation(
        name,
        f"{without:,} of {len(run.sums):,} steps have no noise."
        if without
        else f"Batches of {run.rows} rows do not have binomial sizes, or their noise differs"
        f" (p = {figure(min(steady, law))}): steps with an empty batch may be skipped.",
        meaning="The number of steps, or a step without noise, reveals that no row was sampled.",
        remedy=remedy,
        **figures,
    )


def accountant(evidence: Evidence) -> Finding:
    """Compare the ε of the trainer's accountant with that of the steps that were made."""
    name, run, claims = "accountant", evidence.sampled or evidence.runs[0], evidence.claims
    if run.epsilon is None:
        return not_checked(name, "The trainer sets no task.accountant.")
    steps = len(run.sums)
    mechanism = SGDMechanism(
        rows=run.rows,
        noise_multiplier=claims.noise_multiplier,
        clip=claims.bound,
        sampling_rate=run.rate,
        relation=Neighbouring.parse(claims.relation),
        norm_budget=claims.norm_budget,
    )
    spent = mechanism.guarantee(steps).epsilon(claims.delta)
    figures = {"reported": run.epsilon, "epsilon": spent, "steps": steps}
    text = (
        f"ε = {number(run.epsilon)} is reported after {steps:,} steps at rate {number(run.rate)},"
        f" δ = {number(claims.delta)}; ε = {number(spent, 'up')}"
    )
    if run.epsilon >= spent * (1 - _ACCOUNTANT_ERROR):
        return conforming(name, f"{text} is proved.", **figures)
    return violation(
        name,
        f"{text} is what these steps spend.",
        meaning="The accountant reports a smaller ε than an attacker can reach: it counts too few"
        " steps, a smaller sampling rate or more noise.",
        remedy="Record every step, with the sampling rate and the noise multiplier in use.",
        **figures,
    )


SAMPLING_CHECKS = (sampling, sampled_clipping, empty_batches, accountant)
