"""The claims of D5.3 chapter 5, compared with the results of the trainings."""

import numpy as np

from expost.types import FloatArray
from papers.common.claims import Check, Claim
from papers.d53.composition import BELIEF, DELTA, STEPS
from papers.d53.training import CASES, CLIP, Case, Measured

__all__ = ["claims"]

# How far a median gradient may stay below C and still be "equal to C".
_EQUAL = 0.99
# Accuracies of guessing one of ten digits, with room for chance.
_GUESSING = 0.15


def claims(results: Measured) -> tuple[Claim, ...]:
    """Return all of them, in the order of the paper."""
    return (
        matched_claim(results),
        below_claim(results),
        passed_claim(results),
        full_length_claim(results),
        loose_claim(results),
        decreasing_claim(results),
        utility_claim(results),
        neighbours_claim(results),
        approximation_claim(results),
    )


def _case(key: str) -> Case:
    return next(case for case in CASES if case.key == key)


def matched_claim(results: Measured) -> Claim:
    """Check claim (o): Table 5.1: three of four advantages match ρ_α."""
    checks, parts = [], []
    for key in ("bounded-local", "unbounded-local", "unbounded-global"):
        case, made = _case(key), results.cases[key]
        counted, believed = made.advantage, made.believed_advantage
        parts.append(
            f"{case.name} {counted} counted and {believed} believed (the paper {case.advantage})"
        )
        bound = made.analytic_advantage
        checks += [
            Check(
                what=f"{case.name}: lower end of the counted advantage",
                value=counted.low,
                relation="<=",
                bound=bound,
            ),
            Check(
                what=f"{case.name}: upper end of the counted advantage",
                value=counted.high,
                relation=">=",
                bound=bound,
            ),
        ]
    trainings = results.cases["bounded-local"].trainings
    return Claim(
        key="o",
        says=(
            "With local sensitivity, and with global sensitivity in the unbounded case, the"
            " empirical advantage matches ρ_α = 0.2562."
        ),
        where="Section 5.2, Table 5.1",
        outcome=(
            f"{trainings} trainings each, 95 % intervals: {'; '.join(parts)}. Counting"
            " alone says little: 1,000 trainings leave ±0.06, so that the paper's 0.194 and 0.273"
            " are one number to it. The mean of ∣2β − 1∣ is the same advantage with a fifth of"
            " that interval."
        ),
        checks=tuple(checks),
        figures=("table5.1", "fig5.1"),
    )


def below_claim(results: Measured) -> Claim:
    """Check claim (p): global sensitivity is loose in the bounded case."""
    case, made = _case("bounded-global"), results.cases["bounded-global"]
    return Claim(
        key="p",
        says="With global sensitivity in the bounded case the advantage falls below ρ_α.",
        where="Section 5.2, Table 5.1",
        outcome=(
            f"{made.believed_advantage} believed and {made.advantage} counted (the paper"
            f" {case.advantage}), below {made.analytic_advantage:.4f}: the runs have"
            f" μ = {np.median(made.separations):.3f} of the {made.guarantee.mu:.3f} that the noise"
            f" guarantees, since the gradients are {np.median(made.lengths):.2f} apart and the"
            f" noise is made for {2 * CLIP:g}."
        ),
        checks=(
            Check(
                what="upper end of the believed advantage",
                value=made.believed_advantage.high,
                relation="<",
                bound=made.analytic_advantage,
            ),
            Check(
                what="largest μ of a run over the guaranteed one",
                value=float(np.max(made.separations)) / made.guarantee.mu,
                relation="<",
                bound=1.0,
            ),
        ),
        figures=("table5.1", "fig5.1"),
    )


def passed_claim(results: Measured) -> Claim:
    """Check claim (q): δ bounds how often the belief passes ρ_β."""
    parts = [
        f"{case.name} {results.cases[case.key].passed.value:.4f} (the paper {case.passed:g})"
        for case in CASES
    ]
    allowed = results.cases["bounded-local"].analytic_passed
    return Claim(
        key="q",
        says="δ bounds the share of trainings after which the belief is above ρ_β.",
        where="Section 5.2, Table 5.1",
        outcome=(
            f"Belief in the truth above {BELIEF:g}: {'; '.join(parts)}. Of δ = {DELTA:g} the noise"
            f" uses {allowed:.4f}, since RDP asks for more noise than that belief needs (claim m)."
        ),
        checks=tuple(
            Check(
                what=f"{case.name}: share of trainings past {BELIEF:g}",
                value=results.cases[case.key].passed.value,
                relation="<=",
                bound=DELTA,
            )
            for case in CASES
        ),
        figures=("fig5.1",),
    )


def full_length_claim(results: Measured) -> Claim:
    """Check claim (r): the gradient of the removed image has length C."""
    lengths = results.cases["unbounded-global"].lengths
    return Claim(
        key="r",
        says=(
            "In the unbounded case local and global sensitivity are the same: the gradient of the"
            " removed image is at least C = 3 long before clipping, in all epochs."
        ),
        where="Section 5.2, Figure 5.1(b)",
        outcome=(
            f"Its clipped gradient has a median length of {np.median(lengths):.3f}, and is shorter"
            f" than {_EQUAL:g}·C in {100 * np.mean(lengths < _EQUAL * CLIP):.1f} % of the steps."
            f" At first parameters {100 * results.choices.clipped:.0f} % of D's gradients are"
            " clipped."
        ),
        checks=(
            Check(
                what="median clipped length over C",
                value=float(np.median(lengths)) / CLIP,
                relation=">=",
                bound=_EQUAL,
            ),
            Check(
                what=f"share of steps with less than {_EQUAL:g}·C",
                value=float(np.mean(lengths < _EQUAL * CLIP)),
                relation="<=",
                bound=0.05,
            ),
        ),
        figures=("fig5.1",),
    )


def loose_claim(results: Measured) -> Claim:
    """Check claim (s): the two gradients do not point in opposite directions."""
    lengths = results.cases["bounded-local"].lengths
    return Claim(
        key="s",
        says="In the bounded case the two sums of gradients are less than 2C apart.",
        where="Section 5.2, Figure 5.1(b)",
        outcome=(
            f"{np.median(lengths):.2f} in the median and {np.max(lengths):.2f} at most, of"
            f" {2 * CLIP:g}: two gradients of full length at a right angle would be"
            f" {CLIP * np.sqrt(2):.2f} apart."
        ),
        checks=(
            Check(
                what="largest distance over 2C",
                value=float(np.max(lengths)) / (2 * CLIP),
                relation="<",
                bound=1.0,
            ),
        ),
        figures=("fig5.1",),
    )


def decreasing_claim(results: Measured) -> Claim:
    """Check claim (t): gradients become shorter."""
    ends = {
        key: _ends(results.cases[key].lengths) for key in ("bounded-local", "unbounded-local")
    } | {"utility": _ends(results.utility["bounded-local"].lengths)}
    first, last = ends["bounded-local"]
    removed, rows = ends["unbounded-local"], ends["utility"]
    return Claim(
        key="t",
        says="Gradients tend to become shorter over the course of training.",
        where="Section 5.2",
        outcome=(
            f"From the first to the last of {STEPS} steps the distance goes from {first:.2f} to"
            f" {last:.2f} where the image is exchanged, and the clipped length from"
            f" {removed[0]:.2f} to {removed[1]:.2f} where it is removed. With"
            f" {results.utility_rows:,} rows the distance goes from {rows[0]:.2f} to {rows[1]:.2f}."
            " Thirty steps do not bring gradients below C, and above it clipping hides how long"
            " they are."
        ),
        checks=(
            Check(
                what="bounded: last distance over the first",
                value=last / first,
                relation="<",
                bound=1.0,
            ),
            Check(
                what=f"bounded, {results.utility_rows:,} rows: last distance over the first",
                value=rows[1] / rows[0],
                relation="<",
                bound=1.0,
            ),
        ),
        figures=("fig5.1",),
    )


def utility_claim(results: Measured) -> Claim:
    """Check claim (u): Figure 5.2."""
    means = {key: float(np.mean(made.accuracies)) for key, made in results.utility.items()}
    small = {key: float(np.mean(made.accuracies)) for key, made in results.cases.items()}
    others = [value for key, value in means.items() if key != "bounded-global"]
    unbounded = abs(means["unbounded-local"] - means["unbounded-global"])
    parts = [f"{case.name} {means[case.key]:.3f}" for case in CASES]
    return Claim(
        key="u",
        says=(
            "Models trained on 10,000 images are of some use; least in the bounded case with"
            " global sensitivity, and alike in both unbounded ones."
        ),
        where="Section 5.2, Figure 5.2",
        outcome=(
            f"Test accuracy with {results.utility_rows:,} images, mean of"
            f" {results.utility['bounded-local'].trainings}: {'; '.join(parts)}. With 100 images"
            f" it is {min(small.values()):.2f} to {max(small.values()):.2f}. The noise is the same"
            " for 100 images and for 10,000, and its share of the mean gradient a hundredth."
        ),
        checks=(
            Check(
                what="least mean accuracy",
                value=min(means.values()),
                relation=">=",
                bound=_GUESSING,
            ),
            Check(
                what="bounded, global: mean accuracy, against the least of the others",
                value=means["bounded-global"],
                relation="<=",
                bound=min(others),
            ),
            Check(
                what="difference of the unbounded cases",
                value=unbounded,
                relation="<=",
                bound=0.05,
            ),
        ),
        figures=("fig5.2",),
    )


def neighbours_claim(results: Measured) -> Claim:
    """Check claim (v): Figure 5.3."""
    means = [float(np.mean(made.lengths)) for made in results.neighbours]
    far, near = means[:3], means[3:6]
    return Claim(
        key="v",
        says=(
            "Neighbours with the largest dataset sensitivity have gradients further apart than"
            " those with the smallest."
        ),
        where="Section 5.2, Figure 5.3",
        outcome=(
            f"Mean distance of the sums: {', '.join(f'{value:.2f}' for value in far)} for the three"
            f" furthest by SSIM, {', '.join(f'{value:.2f}' for value in near)} for the three"
            f" nearest; {results.neighbours[0].trainings} trainings each."
        ),
        checks=(
            Check(
                what="least mean of the three furthest, against the largest of the nearest",
                value=min(far),
                relation=">=",
                bound=max(near),
            ),
        ),
        figures=("fig5.3",),
    )


def approximation_claim(results: Measured) -> Claim:
    """Check claim (w): dataset sensitivity approximates local sensitivity."""
    choices = results.choices
    by_images, by_gradients = (float(np.mean(results.neighbours[k].lengths)) for k in (0, 6))
    return Claim(
        key="w",
        says=(
            "Local sensitivity is approximated by the neighbour that maximises dataset sensitivity."
        ),
        where="Chapter 5, Definition 6",
        outcome=(
            f"Over all pairs of a row and one of the images looked at, SSIM and the distance of"
            f" gradients have a rank correlation of {choices.correlation:.2f}. At first parameters"
            f" {100 * choices.share:.1f} % of the pairs are further apart than SSIM's choice, which"
            f" has {choices.distance:.2f} of the largest {choices.furthest:.2f}; over whole"
            f" trainings it has {by_images:.2f}, and the choice by gradients {by_gradients:.2f}."
            " Gradients are exact, and as quick, for the parameters at which they are taken; with"
            " all of them clipped to one length, hardly any choice of another digit stands out."
        ),
        checks=(
            Check(
                what="SSIM's choice: distance over the largest, at first parameters",
                value=choices.distance / choices.furthest,
                relation=">=",
                bound=0.95,
            ),
            Check(
                what="rank correlation of SSIM and gradients",
                value=choices.correlation,
                relation=">=",
                bound=0.5,
            ),
        ),
        figures=("fig5.3",),
    )


def _ends(lengths: FloatArray) -> tuple[float, float]:
    middle = np.median(lengths, axis=0)
    return float(middle[0]), float(middle[-1])
