"""Redberg & Wang Fig. 3 and linear regression as exhibits, and the claims that they decide."""

import math

import numpy as np

from expost.numbers import percent
from papers.common.claims import Check, Claim, quote
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import BLUE, GREEN, GREY, INK, ORANGE, Guide, panels
from papers.redberg_wang.displays import Distribution, DistributionDisplay
from papers.redberg_wang.reports import RHO, SHARES, SPLIT, WHOLE, Corollary, Release, Reports

__all__ = [
    "accuracy_claim",
    "corollary_claim",
    "linear_exhibit",
    "losses_exhibit",
    "plain_claim",
    "ratios_claim",
    "ratios_exhibit",
    "theorem_claim",
    "total_claim",
    "worst_case_claim",
]

_INDEPENDENT, _DEPENDENT = "independent", "dependent"
# "Orders of magnitude": two for the median row, one for all but a hundredth.
_TWO_ORDERS, _ONE_ORDER = 0.01, 0.1
# "Comparable": within a factor of two.
_COMPARABLE = 2.0
# "Reasonably accurate": right to an order of magnitude.
_REASONABLE = 10.0
# Corollary 7 against log densities that are themselves rounded.
_EXACT = 1e-9


def losses_exhibit(reports: Reports) -> Exhibit:
    """R&W Fig. 3a."""
    displays = _loss_displays(reports, epsilon=WHOLE)
    independent, dependent = reports.independent, reports.dependent
    return Exhibit(
        name="fig3a",
        title="Figure 3a: true and published losses at ε = 1",
        caption=(
            f"Default of credit card clients, {reports.rows:,} rows, d = {reports.columns}; one"
            " release of each kind, every row's loss if it were removed. Left: all of ε for θ"
            f" (σ = {quote(independent.mechanism.resolution)}, λ ="
            f" {quote(independent.mechanism.penalty_sum)}). Right: ε₁ = {SPLIT[0]:g} for θ (σ ="
            f" {quote(dependent.mechanism.resolution)}, λ ="
            f" {quote(dependent.mechanism.penalty_sum)}, which Algorithm 2 asks for), ε₂ ="
            f" {SPLIT[1]:g} for the gradient, ε₃ = {SPLIT[2]:g} for the Hessian; the green curve"
            " adds what those two cost each row. Published is Algorithm 2 as printed, with absolute"
            " values in its gradient term. Losses past either end are counted in the bin there."
        ),
        draw=lambda: panels(displays, columns=2, size=(5.6, 4.0)),
        tables={
            "fig3-independent": _rows_table(independent),
            "fig3-dependent": _rows_table(dependent),
            "fig3-quantiles": quantiles_table(reports),
        },
        errata=(
            "Algorithm 2 needs |f′·ĝᵀx| where it prints f′·ĝᵀx, or the minimum would take the"
            " smaller of two numbers of which one may be negative; Theorem 10.1 prints σ₃³ for"
            " σ₃².",
        ),
    )


def ratios_exhibit(reports: Reports) -> Exhibit:
    """R&W Fig. 3b."""
    display = _ratio_display(reports)
    gains = _gains(reports)
    return Exhibit(
        name="fig3b",
        title="Figure 3b: published over true losses",
        caption=(
            "The same two releases. Over"
            f" {reports.releases} pairs of releases the median ratio is {quote(gains[0])}"
            f" data-independent and {quote(gains[2])} data-dependent (geometric means). Not all of"
            " that is owed to the released gradient and Hessian: with the smaller ε₁ and the larger"
            " λ, the data-independent bound of the very same θ (grey), which spends nothing more,"
            f" has {quote(gains[1])}. The long right tail are rows whose true loss is next to 0"
            " because its terms cancel."
        ),
        draw=lambda: display.plot().figure_,
        tables={"fig3b-medians": _medians_table(reports)},
    )


def linear_exhibit(reports: Reports) -> Exhibit:
    """Return the same for linear regression, on the data of Section 4.1."""
    displays = [*_loss_displays(reports, epsilon=None), _ratio_display(reports)]
    independent = reports.independent
    return Exhibit(
        name="linear",
        title="Linear regression: true and published losses",
        caption=(
            f"Section 4.1's synthetic data, n = {reports.rows:,}, d = {reports.columns}, squared"
            " loss on Y in [0, 1] (the paper's own figures are in a supplement that is not at"
            " hand). Corollary 7 holds as it stands, with f″ = 1. But the gradient of the squared"
            " loss is not bounded over all θ, so neither is the loss of a row: no (ε, δ) is"
            " guaranteed, and the ε of a panel only sets its noise, made for gradients of at most"
            f" L = {quote(independent.mechanism.slope_bound)}, the most at any minimiser without"
            f" noise. At the released θ {percent(independent.steeper)} of the rows have a steeper"
            " one."
        ),
        draw=lambda: panels(displays, columns=3, size=(4.9, 4.0)),
        tables={
            "linear-independent": _rows_table(independent),
            "linear-dependent": _rows_table(reports.dependent),
            "linear-quantiles": quantiles_table(reports),
        },
        errata=(
            "Corollary 7's inequality is an equality; Theorem 6 has its ∓ reversed, the term is"
            " −log det(I − H⁻¹∇²ℓ) for a row that leaves.",
        ),
    )


def _loss_displays(reports: Reports, epsilon: float | None) -> list[DistributionDisplay]:
    """Both kinds, over one axis."""
    kinds = (
        (rf"data-independent, $\epsilon_1$ = {WHOLE:g}", _losses(reports.independent)),
        (
            "data-dependent, " + "/".join(f"{share:g}" for share in SPLIT),
            (
                *_losses(reports.dependent),
                Distribution(
                    values=reports.dependent.total,
                    label=r"published $+\ \epsilon_2(z) + \epsilon_3(z)$",
                    colour=GREEN,
                    style="-.",
                ),
            ),
        ),
    )
    ends = DistributionDisplay.ends_of([part for _, parts in kinds for part in parts])
    return [
        DistributionDisplay(
            parts=parts,
            guides=() if epsilon is None else (_guide(epsilon),),
            xlabel="ex-post loss of a row (nats)",
            title=title,
            legend_at="upper left",
            ends=ends,
        )
        for title, parts in kinds
    ]


def _losses(release: Release) -> tuple[Distribution, ...]:
    return (
        Distribution(values=release.true, label="true", colour=BLUE, filled=True),
        Distribution(values=release.published, label="published", colour=ORANGE, style="--"),
    )


def _guide(epsilon: float) -> Guide:
    return Guide(at=epsilon, label=rf"worst case, $\epsilon$ = {epsilon:g}", colour=INK)


def _ratio_display(reports: Reports) -> DistributionDisplay:
    dependent = reports.dependent
    return DistributionDisplay(
        parts=(
            Distribution(values=dependent.ratio, label="data-dependent", colour=GREEN, filled=True),
            Distribution(
                values=dependent.ratio_plain,
                label=r"data-independent, of the same $\theta$",
                colour=GREY,
                style=":",
            ),
            Distribution(
                values=reports.independent.ratio,
                label="data-independent",
                colour=ORANGE,
                style="--",
            ),
        ),
        xlabel="published / true loss",
        title="ratios",
        legend_at="upper right",
    )


def _rows_table(release: Release) -> Table:
    return Table(
        columns={
            "row": np.arange(1, len(release.true) + 1),
            "true": release.true,
            "published": release.published,
            "published_by_expost": release.ours,
            "data_independent": release.plain,
            "epsilon_2": release.gradient_cost,
            "epsilon_3": release.hessian_cost,
        }
    )


def quantiles_table(reports: Reports) -> Table:
    """Quantiles over the rows, of every release."""
    keys = list(reports.quantiles)
    lines = [(kind, figure, number) for kind, figure in keys for number in range(reports.releases)]
    columns: dict[str, object] = {
        "kind": [kind for kind, _, _ in lines],
        "figure": [figure for _, figure, _ in lines],
        "release": np.array([number + 1 for _, _, number in lines]),
    }
    values = np.concatenate([reports.quantiles[key] for key in keys])
    for index, share in enumerate(SHARES):
        columns[f"quantile_{share:g}"] = values[:, index]
    return Table(columns=columns)


def _medians_table(reports: Reports) -> Table:
    middle = SHARES.index(0.5)
    return Table(
        columns={
            "release": np.arange(1, reports.releases + 1),
            **{
                f"{kind}_{figure}": reports.quantiles[kind, figure][:, middle]
                for kind, figure in (
                    (_INDEPENDENT, "ratio"),
                    (_INDEPENDENT, "ratio_ours"),
                    (_DEPENDENT, "ratio"),
                    (_DEPENDENT, "ratio_ours"),
                    (_DEPENDENT, "ratio_plain"),
                )
            },
        },
        note="medians over the rows",
    )


def _gains(reports: Reports) -> tuple[float, float, float]:
    """Median ratios: data-independent; the same of the data-dependent θ; data-dependent."""
    return (
        reports.typical(_INDEPENDENT, "ratio", 0.5),
        reports.typical(_DEPENDENT, "ratio_plain", 0.5),
        reports.typical(_DEPENDENT, "ratio", 0.5),
    )


def worst_case_claim(credit: Reports, synthetic: Reports, tight: Release) -> Claim:
    """Check claim (a): ex-post losses are orders of magnitude below the worst case."""
    checks = []
    for name, reports in (("credit", credit), ("synthetic", synthetic)):
        for share, what, bound in (
            (0.5, "median row", _TWO_ORDERS),
            (0.99, "99 % of the rows", _ONE_ORDER),
        ):
            checks.append(
                Check(
                    what=f"true loss over ε, {what}, {name} data",
                    value=reports.typical(_INDEPENDENT, "true", share) / WHOLE,
                    relation="<=",
                    bound=bound,
                )
            )
    median, most, largest = (
        credit.typical(_INDEPENDENT, "true", share) for share in (0.5, 0.99, 1.0)
    )
    return Claim(
        key="a",
        says=(
            "The ex-post losses of objective perturbation are orders of magnitude smaller than the"
            " worst case that differential privacy guarantees."
        ),
        where="Abstract, Section 1",
        outcome=(
            f"At ε = 1 the median row of the credit data loses {quote(median)} nats, 99 % of the"
            f" rows at most {quote(most)} and the most exposed {quote(largest)} (geometric means"
            f" over {credit.releases} releases): {1 / median:.0f}, {1 / most:.0f} and"
            f" {1 / largest:.0f} times less than ε. Part of it is owed to Theorem 5, whose σ of"
            f" {quote(credit.independent.mechanism.resolution)} is more than ε = 1 needs: in a"
            f" release with the tight {quote(tight.mechanism.resolution)} the median row loses"
            f" {quote(float(np.median(tight.true)))}, the most exposed"
            f" {quote(float(tight.true.max()))}."
        ),
        checks=tuple(checks),
        figures=("fig3a",),
    )


def corollary_claim(corollaries: tuple[Corollary, ...]) -> Claim:
    """Check claim (b): Corollary 7."""
    return Claim(
        key="b",
        says=(
            "For generalised linear models the ex-post loss is −log(1 ± f″μ) + ∥∇ℓ∥²/2σ² ±"
            " ∇J·∇ℓ/σ² (Corollary 7)."
        ),
        where="Section 3.1",
        outcome=(
            "Taken as an equality, it differs by at most"
            f" {quote(max(part.difference for part in corollaries))} nats from log densities whose"
            f" gradient and Hessian are summed again without each row, over"
            f" {sum(part.rows for part in corollaries):,} rows of"
            f" {' and '.join(part.name for part in corollaries)}"
            " regression. (The paper has ≤.)"
        ),
        checks=tuple(
            Check(
                what=f"largest difference from log densities, {corollary.name} regression,"
                f" {corollary.rows:,} rows",
                value=corollary.difference,
                relation="<=",
                bound=_EXACT,
            )
            for corollary in corollaries
        ),
        figures=("linear",),
    )


def ratios_claim(credit: Reports, others: tuple[Reports, ...]) -> Claim:
    """Check claim (g): data-dependent ratios are tighter."""
    checks = [
        Check(
            what=f"{what} of the ratio, data-dependent over data-independent, {reports.name} data",
            value=reports.typical(_DEPENDENT, "ratio", share)
            / reports.typical(_INDEPENDENT, "ratio", share),
            relation="<",
            bound=1.0,
        )
        for reports in (credit, *others)
        for share, what in ((0.5, "median"), (0.9, "0.9-quantile"))
    ]
    smaller = credit.quantiles[_DEPENDENT, "ratio"] < credit.quantiles[_INDEPENDENT, "ratio"]
    middle = smaller[:, SHARES.index(0.5)]
    checks.append(
        Check(
            what="share of the pairs of releases in which the median ratio is smaller, credit data",
            value=float(np.mean(middle)),
            relation=">=",
            bound=0.95,
        )
    )
    plain, same, dependent = _gains(credit)
    return Claim(
        key="g",
        says=(
            "Allotting little of ε to θ and the rest to the report releases the losses much more"
            " accurately: the ratios of published to true losses are tighter."
        ),
        where="Section 4.2, Fig. 3b",
        outcome=(
            f"On the credit data the median ratio falls from {quote(plain)} to {quote(dependent)},"
            f" in {int(middle.sum())} of {credit.releases} pairs of releases. The first step, to"
            f" {quote(same)}, comes with the smaller ε₁ and the larger λ and needs no further"
            f" release; ĝ and Ĥ do the rest, a factor of {same / dependent:.1f}."
        ),
        checks=tuple(checks),
        figures=("fig3b", "linear"),
    )


def total_claim(reports: Reports) -> Claim:
    """(h) With ε₂(z) + ε₃(z) the data-dependent approach is comparable, and has no edge."""
    total = reports.typical(_DEPENDENT, "total", 0.5)
    independent = reports.typical(_INDEPENDENT, "published", 0.5)
    published = reports.typical(_DEPENDENT, "published", 0.5)
    return Claim(
        key="h",
        says=(
            "With what the report itself costs each row, ε̄₁ + ε₂ + ε₃, the data-dependent approach"
            " is comparable to the data-independent ε̄₁, and loses its edge over it."
        ),
        where="Section 4.2, Fig. 3a",
        outcome=(
            f"At the median row the data-dependent ε̄₁ is {quote(published)}, with both costs"
            f" {quote(total)}, and the data-independent ε̄₁ {quote(independent)}: the sum is"
            f" {total / independent:.2f} times that. The true loss is"
            f" {quote(reports.typical(_DEPENDENT, 'true', 0.5))}: nearly all of the sum is the"
            " price of reporting it."
        ),
        checks=(
            Check(
                what="median of the sum over the data-independent median",
                value=total / independent,
                relation="<=",
                bound=_COMPARABLE,
            ),
            Check(
                what="the same, from below",
                value=total / independent,
                relation=">=",
                bound=1 / _COMPARABLE,
            ),
            Check(
                what="without the costs: the data-dependent median over the data-independent one",
                value=published / independent,
                relation="<",
                bound=1 / _COMPARABLE,
            ),
        ),
        figures=("fig3a",),
    )


def plain_claim(reports: Reports) -> Claim:
    """Check claim (i): the data-independent bound is reasonably accurate."""
    ratio = reports.typical(_INDEPENDENT, "ratio", 0.5)
    ours = reports.typical(_INDEPENDENT, "ratio_ours", 0.5)
    largest = reports.typical(_INDEPENDENT, "published", 1.0)
    return Claim(
        key="i",
        says=(
            "The data-independent bound, which costs nothing, empirically is a reasonably accurate"
            " estimate of the ex-post loss."
        ),
        where="Section 5",
        outcome=(
            f"Its largest is {quote(largest)}, where ε is 1, and at the median row it is"
            f" {quote(ratio)} times the true loss (expost's, with log(1 + f″∥x∥²/λ) for the"
            f" determinant: {quote(ours)} times). With λ = 1/(2ε) the determinant alone may take"
            " log 2 of it, while true leverages f″μ are below d/n on average."
        ),
        checks=(
            Check(
                what="median of published over true, credit data",
                value=ratio,
                relation="<=",
                bound=_REASONABLE,
            ),
            Check(
                what="largest published bound over ε",
                value=largest / WHOLE,
                relation="<",
                bound=1.0,
            ),
        ),
        figures=("fig3a", "fig3b"),
    )


def theorem_claim(every_reports: tuple[Reports, ...], stretch: Release) -> Claim:
    """Check claim (j): Theorem 10.3."""
    rows = sum(2 * reports.rows * reports.releases for reports in every_reports)
    above = sum(sum(reports.above.values()) for reports in every_reports)
    stretched = max(reports.stretched for reports in every_reports)
    beyond = stretch.published > stretch.allowed
    worst = float(np.max(stretch.published / stretch.allowed))
    return Claim(
        key="j",
        says=(
            "With probability 1 − 3ρ the published loss is at least the true one, and at most 12"
            " times it plus |f′|∥x∥√(2 log(2/ρ))/σ₂ (Theorem 10.3)."
        ),
        where="Section 3.3",
        outcome=(
            f"{above:,} of {rows:,} true losses (rows and releases, both kinds, three data sets)"
            " pass their bound. Of what the upper limit allows, the published loss is at most"
            f" {quote(stretched)} at the paper's split, where the limit's second term covers"
            f" everything. At ε₂ = 0.01 it is up to {quote(worst)}, and"
            f" {percent(float(np.mean(beyond)))} of the credit rows pass the limit: the terms of a"
            " true loss can cancel, those of its bound cannot."
        ),
        checks=(
            Check(
                what="share of rows whose true loss passes the published one",
                value=above / rows,
                relation="<=",
                bound=3 * RHO,
            ),
            Check(
                what="largest published loss over what is allowed, ε₂ = 0.7",
                value=stretched,
                relation="<=",
                bound=1.0,
            ),
            Check(
                what="largest published loss over what is allowed, ε₂ = 0.01, credit data",
                value=worst,
                relation="<=",
                bound=1.0,
            ),
        ),
        figures=("fig3a",),
    )


def accuracy_claim(reports: Reports) -> Claim:
    """Check claim (k): a smaller ε₁ makes θ less accurate."""
    wrong = {kind: float(np.mean(values)) for kind, values in reports.wrong.items()}
    value = {kind: float(np.mean(values)) for kind, values in reports.value.items()}
    error = math.hypot(
        *(
            float(np.std(values, ddof=1)) / math.sqrt(len(values))
            for values in reports.wrong.values()
        )
    )
    return Claim(
        key="k",
        says="The downside: reducing ε₁ reduces the accuracy of θ.",
        where="Section 4.2",
        outcome=(
            f"On the credit data the 0-1 loss goes from {wrong[_INDEPENDENT]:.4f} at ε₁ = 1 to"
            f" {wrong[_DEPENDENT]:.4f} at ε₁ = {SPLIT[0]:g} (their difference is known to"
            f" {error:.4f}), the mean logistic loss from {value[_INDEPENDENT]:.4f} to"
            f" {value[_DEPENDENT]:.4f}; always answering the more frequent label has"
            f" {reports.rarer:.4f}."
        ),
        checks=(
            Check(
                what="rise of the mean 0-1 loss over two standard errors",
                value=(wrong[_DEPENDENT] - wrong[_INDEPENDENT]) / (2 * error),
                relation=">=",
                bound=1.0,
            ),
            Check(
                what="rise of the mean logistic loss",
                value=value[_DEPENDENT] - value[_INDEPENDENT],
                relation=">=",
                bound=0.0,
            ),
        ),
        figures=("fig3a",),
    )
