"""The checks of a trainer's steps: clipping, noise, divisor, seeds, gradients that are not finite.

Each check returns a finding. A statistical one reports a violation by chance with probability
``level`` at most if all claims hold (docs/theory/conformance.md); the others never do.
"""

import math
from typing import Any

import numpy as np
from scipy import stats

from expost.conformance.claims import LAYERS
from expost.conformance.evidence import SHORT, Evidence, contains
from expost.conformance.result import Finding, Verdict
from expost.conformance.statistics import (
    Interval,
    cosine_p_value,
    extreme_p_value,
    mean_interval,
    ratio_interval,
    scale_interval,
    successive_p_value,
    uniform_p_value,
)
from expost.conformance.tasks import (
    FREE,
    FREE_LAYER,
    GROUPS,
    SIGNAL,
    STARTS,
    TrainerFailed,
    observe,
    rows_with,
)
from expost.numbers import figure, number

__all__ = ["STEP_CHECKS", "conforming", "extra_loss", "not_checked", "violation"]

# Room for the rounding of single precision, of sums over hundreds of rows.
_ROUNDING = 1e-4


def conforming(check: str, evidence: str, **named: Any) -> Finding:
    """Return the finding that a claim holds, as far as can be told."""
    return _finding(check, Verdict.CONFORMS, evidence, **named)


def violation(check: str, evidence: str, **named: Any) -> Finding:
    """Return the finding that a claim is violated."""
    return _finding(check, Verdict.VIOLATES, evidence, **{"weakens": True, **named})


def not_checked(check: str, reason: str) -> Finding:
    """Return the finding that nothing was compared."""
    return _finding(check, Verdict.NOT_CHECKED, reason)


def _finding(check: str, verdict: Verdict, evidence: str, **named: Any) -> Finding:
    texts = {name: named.pop(name) for name in ("meaning", "remedy", "weakens") if name in named}
    figures = {name: float(value) for name, value in named.items() if math.isfinite(value)}
    return Finding(check=check, verdict=verdict, evidence=evidence, figures=figures, **texts)


def between(interval: Interval, digits: int = 3) -> str:
    """Return an interval in words, rounded outwards."""
    return f"{number(interval[0], 'down', digits)} to {number(interval[1], 'up', digits)}"


# -- clipping --------------------------------------------------------------------------------------


def clipping(evidence: Evidence) -> Finding:
    """Compare what rows of each length contribute with their clipped gradients."""
    claims, each = evidence.claims, evidence.contributions
    low, high = evidence.factor
    level = evidence.level / (2 * len(each))
    wrong: dict[int, float] = {}
    for part in each:
        room = _ROUNDING * claims.bound
        ends = mean_interval(part.values, level)
        if ends[0] - room > part.expected * high or ends[1] + room < part.expected * low:
            off = abs(float(np.mean(part.values)) - part.expected)
            wrong[part.group] = max(off, wrong.get(part.group, 0.0))

    def length(group: int, expected: bool = False) -> float:
        parts = [part for part in each if part.group == group]
        means = [part.expected if expected else float(np.mean(part.values)) for part in parts]
        scale = 1.0 if expected else (low + high) / 2
        net = 1 / 3 if GROUPS[group].opposite else 1.0
        return math.hypot(*means) / (scale * net * claims.bound)

    measured = {f"length_{at}": length(at) for at in sorted({part.group for part in each})}
    if not wrong:
        longest = max(at for at, group in enumerate(GROUPS) if not group.opposite)
        return conforming(
            "clipping",
            f"Rows with gradients of {number(GROUPS[longest].length)} C contribute"
            f" {number(length(longest))} C each, shorter ones what they are.",
            **measured,
        )
    worst = max(wrong, key=lambda group: wrong[group])
    group = GROUPS[worst]
    harmless = all(at < SHORT for at in wrong)
    turned = ", a third of them in the opposite direction," if group.opposite else ""
    return violation(
        "clipping",
        f"Rows with gradients of {number(group.length)} C{turned} contribute"
        f" {number(length(worst))} C each; {number(length(worst, expected=True))} C is claimed.",
        weakens=not harmless,
        meaning="The trainer does not clip as claimed, but no row contributes more than C: the"
        " guarantee holds."
        if harmless
        else "One row can move the sum by something else than its gradient, clipped to C over all"
        " layers: the noise is not calibrated to what a row contributes.",
        remedy="Clip the gradient of each row over all layers together, before the sum: g·min(1,"
        " C/∥g∥). If parts are clipped layer by layer, claim a clip for each layer.",
        **measured,
    )


def norm_budget(evidence: Evidence) -> Finding:
    """Check that rows contribute nothing once their budget is spent."""
    name, budget = "norm budget", evidence.claims.norm_budget
    if budget is None:
        return not_checked(name, "No filter is claimed (norm_budget).")
    closed = [
        evidence.contribution(at, layer, slice(evidence.open_steps(group)[1], None))
        for at, group in enumerate(GROUPS)
        for layer, part in enumerate(group.parts)
        if part and evidence.open_steps(group)[1] + 2 < evidence.steps
    ]
    if not closed:
        return not_checked(name, "The budget lasts longer than the steps that were observed.")
    level, room = evidence.level / len(closed), _ROUNDING * evidence.claims.bound
    late = [
        part
        for part in closed
        if not contains(mean_interval(part.values, level), 0.0)
        and abs(float(np.mean(part.values))) > room
    ]
    if not late:
        return conforming(name, "Rows contribute nothing once their budget is spent.")
    length = GROUPS[late[-1].group].length
    return violation(
        name,
        f"Rows with gradients of {number(length)} C still contribute when √Σ∥g∥² has passed"
        f" {number(budget)}.",
        meaning="A row's own ε is not bounded by its budget.",
        remedy="Leave a row out for good before the root of its sum of squares passes the budget.",
    )


# -- noise -----------------------------------------------------------------------------------------


def noise_scale(evidence: Evidence) -> Finding:
    """Compare the standard deviation of the noise with s, in all layers and in each."""
    claims, name = evidence.claims, "noise scale"
    low, high = evidence.factor
    unit = claims.noise_scale / claims.noise_multiplier
    parts = {"all layers": evidence.noise}
    parts |= {layer: evidence.noise[:, at == FREE_LAYER] for at, layer in enumerate(LAYERS)}
    intervals: dict[str, Interval] = {}
    level = evidence.level / (2 * (len(parts) + 1))
    for part, values in parts.items():
        ends = scale_interval(float(np.sum(np.square(values))), values.size, level)
        intervals[part] = ends[0] / (high * unit), ends[1] / (low * unit)
    if claims.norm_budget is None:
        at = [start + k for start in STARTS for k in range(SIGNAL)]
        centred = np.concatenate(
            [run.sums[:, at] - run.sums[:, at].mean(0) for run in evidence.runs]
        )
        free = centred.size - len(evidence.runs) * len(at)
        ends = scale_interval(float(np.sum(np.square(centred))), free, level)
        intervals["coordinates with gradients"] = ends[0] / (high * unit), ends[1] / (low * unit)
    overall = intervals["all layers"]
    figures = {"noise_multiplier_low": overall[0], "noise_multiplier_high": overall[1]}
    wrong = [p for p, ends in intervals.items() if not contains(ends, claims.noise_multiplier)]
    # Too few to show in a standard deviation; no noise is never by chance.
    silent = [
        f"{count:,} {of if count > 1 else of[:-1]}"
        for of, count in evidence.without_noise.items()
        if count
    ]
    if not wrong and not silent:
        return conforming(name, f"Noise multiplier {between(overall)}.", **figures)
    less = bool(silent) or any(intervals[part][0] < claims.noise_multiplier for part in wrong)
    text = f"Noise multiplier {between(overall)}, but no noise at all in {' and '.join(silent)}."
    if wrong:
        where = "" if wrong[0] == "all layers" else f" in {wrong[0]}"
        text = (
            f"Noise multiplier {between(intervals[wrong[0]])}{where};"
            f" {number(claims.noise_multiplier)} is claimed."
        )
    return violation(
        name,
        text,
        weakens=less,
        meaning="There is less noise than the accountant assumes: ε is larger than reported."
        if less
        else "There is more noise than claimed. The guarantee holds, and the model is worse than it"
        " could be.",
        remedy="Add N(0, s²) to every coordinate of the sum of clipped gradients, with s = σC"
        " (2σC where a row is replaced), before the division.",
        **figures,
    )


def noise_independence(evidence: Evidence) -> Finding:
    """Look for correlations of the noise: of two coordinates, two steps, all successive steps."""
    name = "noise independence"
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    pairs = {"steps": evidence.noise, "coordinates": evidence.noise.T}
    cosines = {of: cosine_p_value(vectors) for of, vectors in pairs.items()}
    # Full and sampled batches: their noise has the same scale only if the divisor is as claimed.
    each = [tuple(run.free for run in evidence.runs)]
    each += [] if evidence.sampled is None else [(evidence.sampled.free,)]
    successive, least = min((successive_p_value(*runs) for runs in each), key=lambda pair: pair[1])
    results = {**cosines, "successive steps": (successive, min(1.0, len(each) * least))}
    figures: dict[str, float] = {}
    for of, (correlation, p_value) in results.items():
        key = of.replace(" ", "_")
        figures |= {f"correlation_of_{key}": correlation, f"p_value_of_{key}": p_value}
    wrong = [of for of, (_, p_value) in results.items() if p_value < evidence.level / 3]
    if not wrong:
        text = " and ".join(f"{number(cosines[of][0])} between {of}" for of in cosines)
        return conforming(
            name,
            f"Largest correlation {text}, and {number(successive)} over all successive steps, as by"
            " chance.",
            **figures,
        )
    correlation, p_value = results[wrong[0]]
    which = "all" if wrong[0] == "successive steps" else "two"
    return violation(
        name,
        f"The noise of {which} {wrong[0]} has a correlation of {number(correlation)}"
        f" (p = {figure(p_value)}).",
        meaning="Noise that repeats cancels in differences: the sums can be read without it.",
        remedy="Draw new noise for every coordinate, in every layer and at every step.",
        **figures,
    )


def noise_distribution(evidence: Evidence) -> Finding:
    """Test whether the noise is normal, in its middle and in its tails."""
    name, noise = "noise distribution", evidence.noise
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    # With the claimed scale if it may be right, so that the p-values are exact; else as measured.
    right = contains(evidence.noise_factor, 1.0)
    scale = evidence.claims.noise_scale if right else float(np.sqrt(np.mean(np.square(noise))))
    scores = (noise / scale).ravel()
    shape, tails = uniform_p_value(stats.norm.cdf(scores)), extreme_p_value(scores)
    figures = {"p_value_of_shape": shape, "p_value_of_tails": tails}
    figures["largest"] = float(np.max(np.abs(scores)))
    if min(shape, tails) >= evidence.level / 2:
        text = (
            f"{noise.size:,} values are as those of a normal law (p = {figure(min(shape, tails))})."
        )
        return conforming(name, text, **figures)
    return violation(
        name,
        f"The noise is not normal: p = {figure(shape)} for its shape, and p = {figure(tails)} for"
        f" its largest value, {number(figures['largest'])} standard deviations.",
        meaning="The accountant's ε is that of normal noise.",
        remedy="Draw normal noise, not truncated and not clipped afterwards.",
        **figures,
    )


# -- divisor ---------------------------------------------------------------------------------------


def extra_loss(parameters: int, ratio: float) -> float:
    """Return the expected privacy loss of a step whose noise scale depends on the data.

    KL(N(0, κ²I) ∥ N(0, I)) in d dimensions: (d/2)(κ² − 1 − ln κ²) nats. Sampling does not amplify
    it, because the scale depends on a row that is not sampled as well.

    Parameters
    ----------
    parameters : int
        d, the number of parameters.
    ratio : float
        κ, the ratio of the noise scales on neighbouring data sets.

    Returns
    -------
    float
        Nats a step.
    """
    excess = ratio**2 - 1
    return parameters / 2 * (excess - math.log1p(excess))


def divisor(evidence: Evidence) -> Finding:
    """Compare the scale of all that is published with the claimed learning rate and divisor."""
    name = "divisor"
    first = evidence.runs[0]
    figures: dict[str, float] = {}
    wrong: list[str] = []
    varies = False
    factors = {first: evidence.factor}
    if evidence.has_noise:
        others = [run for run in (evidence.half, evidence.sampled) if run is not None]
        factors |= {run: evidence.factor_of(run) for run in others}
    for run, factor in factors.items():
        ends = run.divisor / factor[1], run.divisor / factor[0]
        if not contains(factor, 1.0):
            at = "full batches" if run.rate == 1 else f"batches at rate {number(run.rate)}"
            wrong.append(
                f"Sums of {at} of {run.rows:,} rows are divided by {between(ends)};"
                f" {number(run.divisor)} is claimed"
            )
        key = f"divisor_{run.rows}_rows_rate_{run.rate:g}"
        figures |= {f"{key}_low": ends[0], f"{key}_high": ends[1]}
    if evidence.sampled is not None and evidence.has_noise:
        squares = np.sum(np.square(evidence.sampled.free), axis=1)
        quantiles = stats.chi2.cdf(
            squares / np.mean(np.square(evidence.sampled.free)), len(FREE_LAYER)
        )
        figures["p_value_of_constancy"] = p_value = uniform_p_value(quantiles)
        varies = p_value < evidence.level / 4
        if varies:
            wrong.append(
                f"The noise scale changes from step to step (p = {figure(p_value)}): the divisor"
                " depends on the rows that were sampled"
            )
    if not wrong:
        return conforming(
            name, f"Sums are divided by {number(first.divisor)}, as claimed.", **figures
        )
    return violation(
        name,
        "; ".join(wrong) + ".",
        weakens=varies,
        meaning="Noise and gradients are scaled alike: a wrong constant changes the learning rate"
        " and not ε. A divisor that depends on the rows changes the noise scale between"
        " neighbouring data sets, which no accountant counts.",
        remedy="Divide by a constant that is fixed before the data is read, such as the expected"
        " batch size for a public number of rows, or claim the divisor and learning rate in use.",
        **figures,
    )


def public_n(evidence: Evidence) -> Finding:
    """Test whether the noise scale of a step depends on the number of rows."""
    name, claims = "number of rows", evidence.claims
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    all_rows, half = evidence.runs[0], evidence.half
    low, high = ratio_interval(half.free, evidence.noise, evidence.level)
    scale = all_rows.divisor / half.divisor
    ends = low * scale, high * scale
    figures = {"ratio_low": ends[0], "ratio_high": ends[1]}
    if contains(ends, 1.0):
        return conforming(
            name, "The noise of a step does not depend on the number of rows.", **figures
        )
    rows, width = all_rows.rows, sum(LAYERS.values())
    nats = extra_loss(width, rows / (rows - 1))
    figures["extra_nats"] = nats
    text = (
        f"With {half.rows:,} instead of {rows:,} rows the noise of a step is {between(ends)} times"
        " as large"
    )
    condition = (
        "The divisor is computed from the number of rows n. Data sets that differ by a row then"
        " have different noise: about d/n² nats a step more for d parameters"
        f" ({figure(nats, 'up')} for this model of {width} parameters and {rows:,} rows), not"
        " amplified by sampling."
    )
    if claims.n_public:
        return conforming(
            name,
            f"{text}. The guarantee holds because the number of rows is claimed to be public.",
            meaning=f"{condition} If n is public, both data sets have the same divisor.",
            **figures,
        )
    return violation(
        name,
        f"{text}, and the number of rows is not claimed to be public.",
        meaning=condition,
        remedy="Declare the number of rows public (n_public) and keep it for both neighbouring data"
        " sets, or fix the divisor and the sampling rate before the data is read, or compute them"
        " from a noisy number of rows that has its own part of ε.",
        **figures,
    )


# -- seeds and numbers that are not finite ---------------------------------------------------------


def seeds(evidence: Evidence) -> Finding:
    """Compare the noise of two runs, without a seed and with the same one."""
    name, claims = "seeds", evidence.claims
    if not evidence.has_noise:
        return not_checked(name, "A step has no noise.")
    room = 1e-6 * claims.noise_scale
    first, second = (run.free[0] for run in evidence.runs)
    if np.all(np.abs(first - second) <= room):
        return violation(
            name,
            "Two runs have the same noise.",
            meaning="The trainer sets a seed: anyone who knows the code can remove the noise.",
            remedy="Remove the seed, at least for a release.",
        )
    first, second = (run.free[0] for run in evidence.seeded)
    if np.all(np.abs(first - second) <= room):
        text = "Two runs differ, and are equal if the global generators have the same seed."
        meaning = (
            "The noise comes from a generator that a seed controls: anyone who knows or guesses the"
            " seed can remove it."
        )
        if not claims.secure:
            return conforming(name, text, meaning=meaning)
        return violation(
            name,
            text,
            meaning=meaning,
            remedy="Draw the noise from a cryptographic generator, or do not claim secure noise.",
        )
    return conforming(name, "Two runs differ, also if the global generators have the same seed.")


def not_finite(evidence: Evidence) -> Finding:
    """Train on a row whose gradient is NaN, and on one whose gradient overflows."""
    name, claims = "not finite", evidence.claims
    if claims.not_finite == "absent":
        return not_checked(name, "Rows with gradients that are NaN or infinite are claimed absent.")
    large = 10 * math.sqrt(evidence.runs[0].largest)
    level = evidence.level / 4
    refused = 0
    for kind, rows in {
        "NaN": rows_with(math.nan, 1.0),
        "infinite": rows_with(large, large),
    }.items():
        try:
            run = observe(evidence.trainer, claims, rows, rate=1.0, steps=1, finite=False)
        except TrainerFailed:
            refused += 1
            continue
        problem = _problem(evidence, run.sums[0], level)
        if problem or claims.not_finite == "refused":
            return violation(
                name,
                f"One row's gradient is {kind}, and {problem or 'the trainer continues'}.",
                weakens=bool(problem),
                meaning="What is published shows that such a row was in the data."
                if problem
                else "The trainer does not refuse such a row as claimed; its contribution is"
                " bounded.",
                remedy="Test the length of each row's gradient with isfinite before clipping, and"
                " raise an error or replace the gradient by zeros.",
            )
    text = ("bounds the contribution of", "refuses one and bounds the other of", "refuses")[refused]
    return conforming(name, f"The trainer {text} rows whose gradients are NaN or infinite.")


def _problem(evidence: Evidence, sums: Any, level: float) -> str:
    """Return what is wrong with a step on one row that is not finite, or ""."""
    if not np.all(np.isfinite(sums)):
        return "the parameters are no longer finite"
    # As measured: whether it is the claimed scale is another check.
    scale = float(np.sqrt(np.mean(np.square(evidence.noise))))
    least, most = np.sqrt(stats.chi2.isf([1 - level, level], len(sums)))
    if float(np.linalg.norm(sums[FREE])) < 0.5 * scale * least:
        return "the step has no noise"
    if float(np.linalg.norm(sums)) > 1.1 * (evidence.claims.bound + scale * most):
        return "the row contributes more than C"
    return ""


STEP_CHECKS = (
    clipping,
    norm_budget,
    noise_scale,
    noise_independence,
    noise_distribution,
    divisor,
    public_n,
    seeds,
    not_finite,
)
