"""Table 5.1 and Figures 5.1 to 5.3 of D5.3, with their numbers."""

from typing import Any

import numpy as np
from scipy.special import logit, ndtr

from papers.common.exhibits import Exhibit, Table, thinned
from papers.common.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Curve,
    CurvesDisplay,
    Guide,
    panels,
)
from papers.d53.composition import BELIEF, DELTA, STEPS
from papers.d53.training import CASES, CLIP, Measured
from papers.d53.training_displays import CasesDisplay, Series

__all__ = ["exhibits"]

_COLOURS = dict(zip((case.key for case in CASES), (BLUE, ORANGE, GREEN, PURPLE), strict=True))
_DASHES = dict(zip((case.key for case in CASES), ("-", "--", "-.", ":"), strict=True))
_NAMES = tuple(case.name.replace(", ", "\n") for case in CASES)


def exhibits(results: Measured) -> tuple[Exhibit, ...]:
    """Return all of them, in the order of the paper."""
    return (
        table_exhibit(results),
        cases_exhibit(results),
        utility_exhibit(results),
        far_exhibit(results),
    )


def table_exhibit(results: Measured) -> Exhibit:
    """Table 5.1: advantages and empirical δ."""
    made = [results.cases[case.key] for case in CASES]
    counted = [game.advantage for game in made]
    believed = [game.believed_advantage for game in made]
    bound = made[0].analytic_advantage
    display = CasesDisplay(
        cases=_NAMES,
        series=(
            Series(
                values=np.array([case.advantage for case in CASES]),
                label="printed in Table 5.1",
                colour=GREY,
                marker="s",
            ),
            _series(counted, "counted", BLUE, "o"),
            _series(believed, "believed", ORANGE, "D"),
        ),
        guides=(
            Guide(at=bound, axis="y", colour=INK, label=rf"bound $\rho_\alpha$ = {bound:.4f}"),
        ),
        ylabel="advantage",
    )
    columns: dict[str, Any] = {
        "case": [case.name for case in CASES],
        "trainings": np.array([game.trainings for game in made]),
        "advantage_printed": np.array([case.advantage for case in CASES]),
        "advantage": np.array([interval.value for interval in counted]),
        "advantage_low": np.array([interval.low for interval in counted]),
        "advantage_high": np.array([interval.high for interval in counted]),
        "believed_advantage": np.array([interval.value for interval in believed]),
        "believed_low": np.array([interval.low for interval in believed]),
        "believed_high": np.array([interval.high for interval in believed]),
        "advantage_bound": np.array([game.analytic_advantage for game in made]),
        "delta_printed": np.array([case.passed for case in CASES]),
        "delta": np.array([game.passed.value for game in made]),
        "delta_low": np.array([game.passed.low for game in made]),
        "delta_high": np.array([game.passed.high for game in made]),
        "delta_bound": np.array([game.analytic_passed for game in made]),
        "mu_median": np.array([np.median(game.separations) for game in made]),
        "epsilon_shown": np.array([game.epsilon_lower_bound(DELTA) for game in made]),
    }
    return Exhibit(
        name="table5.1",
        title="Table 5.1: the empirical advantage and the empirical δ",
        caption=(
            "The advantage of the strong adversary in each case: as printed, counted with its 95 %"
            " interval, and the mean of ∣2β − 1∣, which is the same quantity with less spread."
            " No adversary can be above the line. epsilon_shown is the ε that the counts prove at"
            " least, at δ = 0.01 and 95 %; the noise was made for ε = 2.2."
        ),
        draw=lambda: display.plot().figure_,
        tables={"table5.1": Table(columns=columns)},
        errata=(
            "For the unbounded case with local sensitivity the text prints"
            " n·∥n·ĝ(D') − (n − 1)·ĝ(D)∥; the sensitivity of the sum is ∥n·ĝ(D) − (n − 1)·ĝ(D')∥.",
        ),
    )


def _series(intervals: list[Any], label: str, colour: str, marker: str) -> Series:
    value, low, high = (
        np.array([getattr(interval, name) for interval in intervals])
        for name in ("value", "low", "high")
    )
    return Series(values=value, low=low, high=high, label=label, colour=colour, marker=marker)


def cases_exhibit(results: Measured) -> Exhibit:
    """Figure 5.1: beliefs after training, and sensitivities over the epochs."""
    grid = np.linspace(0.02, 0.98, 193)
    mu = results.cases["bounded-local"].guarantee.mu
    beliefs = [Curve(x=grid, y=ndtr(logit(grid) / mu - mu / 2), colour=GREY, label="exact law")]
    lengths, ends = [], {}
    steps = np.arange(1.0, STEPS + 1)
    for case in CASES:
        made, colour, style = results.cases[case.key], _COLOURS[case.key], _DASHES[case.key]
        final = np.sort(made.beliefs[:, -1])
        share = np.arange(1, len(final) + 1) / len(final)
        ends[case.key] = final, share
        beliefs.append(
            Curve(x=final, y=share, label=case.name, style=style, width=1.4, colour=colour)
        )
        low, middle, high = np.quantile(made.lengths, [0.05, 0.5, 0.95], axis=0)
        lengths.append(Curve(x=steps, y=middle, label=case.name, style=style, colour=colour))
        lengths += [
            Curve(x=steps, y=end, style=":", width=0.7, colour=colour) for end in (low, high)
        ]
    left = CurvesDisplay(
        curves=tuple(beliefs),
        guides=(Guide(at=BELIEF, label=rf"$\rho_\beta$ = {BELIEF:g}"), Guide(at=0.5, style=":")),
        xlabel=r"belief in the truth after 30 epochs, $\beta_T$",
        ylabel="share of the trainings",
        title="(a)",
        log_x=False,
        log_y=False,
    )
    right = CurvesDisplay(
        curves=tuple(lengths),
        guides=(
            Guide(at=CLIP, axis="y", colour=GREY, label="C"),
            Guide(at=2 * CLIP, axis="y", colour=GREY, style="-.", label="2C"),
        ),
        xlabel="epoch",
        ylabel="distance of the two sums of gradients",
        title="(b)",
        log_x=False,
        log_y=False,
    )
    kept = {key: thinned(len(share)) for key, (_, share) in ends.items()}
    return Exhibit(
        name="fig5.1",
        title="Figure 5.1: beliefs after training, and sensitivity over the epochs",
        caption=(
            "(a) Beliefs in the world that the training was made in, as shares of the trainings at"
            " or below them; in grey the law of Gaussian noise at full sensitivity, which the three"
            " cases with noise scaled to what the gradients do must follow. (b)"
            " Medians over the trainings, with their 5 % and 95 % quantiles dotted: the local"
            " sensitivity, for either scaling of the noise."
        ),
        draw=lambda: panels([left, right], columns=2),
        tables={
            "fig5.1a": Table(
                columns={
                    "case": [case.name for case in CASES for _ in kept[case.key]],
                    "belief": np.concatenate([ends[c.key][0][kept[c.key]] for c in CASES]),
                    "share": np.concatenate([ends[c.key][1][kept[c.key]] for c in CASES]),
                },
                note="every training, up to 400",
            ),
            "fig5.1b": Table(
                columns={
                    "case": [case.name for case in CASES for _ in steps],
                    "epoch": np.tile(steps.astype(np.int64), len(CASES)),
                    **{
                        f"distance_{name}": np.concatenate(
                            [np.quantile(results.cases[c.key].lengths, q, axis=0) for c in CASES]
                        )
                        for name, q in (("low", 0.05), ("median", 0.5), ("high", 0.95))
                    },
                }
            ),
        },
    )


def utility_exhibit(results: Measured) -> Exhibit:
    """Figure 5.2: test accuracies."""
    many = [results.utility[case.key].accuracies for case in CASES]
    few = [results.cases[case.key].accuracies for case in CASES]
    display = CasesDisplay(
        cases=_NAMES,
        series=(
            Series(
                values=np.array([np.mean(accuracies) for accuracies in many]),
                clouds=tuple(many),
                label=f"{results.utility_rows:,} images",
                colour=BLUE,
            ),
            Series(
                values=np.array([np.mean(accuracies) for accuracies in few]),
                clouds=tuple(np.sort(accuracies) for accuracies in few),
                label="100 images",
                colour=ORANGE,
                marker="D",
            ),
        ),
        guides=(Guide(at=0.1, axis="y", style=":", label="guessing"),),
        ylabel="test accuracy",
    )
    sizes = (("10000", many), ("100", few))
    return Exhibit(
        name="fig5.2",
        title="Figure 5.2: test accuracy after 30 epochs",
        caption=(
            "Accuracies of single trainings, and their means. The paper trains on 10,000 images for"
            f" this figure; here on {results.utility_rows:,}, and on the 100 of the other"
            " figures."
        ),
        draw=lambda: display.plot().figure_,
        tables={
            "fig5.2": Table(
                columns={
                    "case": [c.name for c in CASES for _ in sizes],
                    "images": [size for _ in CASES for size in (results.utility_rows, 100)],
                    "trainings": [len(part[k]) for k in range(len(CASES)) for _, part in sizes],
                    **{
                        f"accuracy_{name}": np.array(
                            [statistic(part[k]) for k in range(len(CASES)) for _, part in sizes]
                        )
                        for name, statistic in (
                            ("least", np.min),
                            ("mean", np.mean),
                            ("most", np.max),
                        )
                    },
                }
            )
        },
    )


def far_exhibit(results: Measured) -> Exhibit:
    """Figure 5.3: neighbours from the furthest to the nearest, and the one by gradients."""
    names = (*(f"furthest {k}" for k in (1, 2, 3)), *(f"nearest {k}" for k in (3, 2, 1)))
    names = (*names, "by gradients")
    # The nearest last, so that the paper's trend goes downwards.
    order = (0, 1, 2, 5, 4, 3, 6)
    lengths = [results.neighbours[rank].lengths for rank in order]
    low, middle, high = (
        np.array([np.quantile(values, q) for values in lengths]) for q in (0.05, 0.5, 0.95)
    )
    display = CasesDisplay(
        cases=tuple(name.replace(" ", "\n") for name in names),
        series=(Series(values=middle, low=low, high=high, colour=BLUE),),
        guides=(
            Guide(at=CLIP, axis="y", colour=GREY, label="C"),
            Guide(at=2 * CLIP, axis="y", colour=GREY, style="-.", label="2C"),
        ),
        ylabel="distance of the two sums of gradients",
    )
    return Exhibit(
        name="fig5.3",
        title="Figure 5.3: the distance of gradients, from the furthest neighbour to the nearest",
        caption=(
            "Neighbours by dataset sensitivity, and, not in the paper, the furthest by gradients at"
            " first parameters: medians over all steps of all trainings, with 5 % and 95 %"
            " quantiles."
        ),
        draw=lambda: display.plot().figure_,
        tables={
            "fig5.3": Table(
                columns={
                    "neighbour": list(names),
                    "trainings": [len(values) for values in lengths],
                    "distance_low": low,
                    "distance_median": middle,
                    "distance_high": high,
                    "distance_mean": np.array([np.mean(values) for values in lengths]),
                }
            )
        },
        errata=(
            "For the unbounded case the text removes the image “with the smallest SSIM distance to"
            " all other images”; what is meant, and what its authors' code does, is the smallest"
            " similarity: the largest distance.",
        ),
    )
