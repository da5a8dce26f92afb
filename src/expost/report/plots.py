"""Every result as a figure: which display draws which result.

``result.plot()`` comes here (:mod:`expost.results`). Results of :mod:`expost.torch` are known by
name, so that torch is not imported where there is none.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from expost import _checks
from expost.attacks.lower_bounds import LowerBound
from expost.attacks.roc import AttackFigures, Roc
from expost.attacks.snapshots import EpochTable, Snapshots
from expost.audits.disparity import Disparity
from expost.audits.result import Audit
from expost.audits.sweep import AuditSweep
from expost.defences.table import DefenceTable
from expost.epsilon.choice import EpsilonChoice
from expost.epsilon.row_figures import EstimatedLosses
from expost.errors import InvalidInput
from expost.groups.exposure import Explanation, Grouping
from expost.ledger import Ledger
from expost.mechanisms import RowLosses
from expost.mechanisms.dpsgd import Transcript
from expost.neighbouring.neighbours import Neighbours
from expost.noise.coverage import Coverage
from expost.profiles.posterior import RowIdentifiability
from expost.profiles.profile import Profile
from expost.profiles.transcript import IndividualEpsilon
from expost.publishing.compare import Comparison
from expost.publishing.report import Answer, PublishedReport
from expost.release import Release
from expost.report import plots_named, plots_rows, plots_training
from expost.report.audit_displays import ExposureDisplay, RocDisplay
from expost.report.audit_part import CurvePoint
from expost.report.audit_sweep_display import AuditSweepDisplay
from expost.report.display import BLUE, GREY, INK, ORANGE, Display, PanelsDisplay
from expost.report.group_displays import ComparisonDisplay, GroupsDisplay, LedgerDisplay
from expost.report.paper_displays import Curve, CurvesDisplay
from expost.report.risk_displays import RiskDisplay
from expost.report.transition_display import TransitionDisplay
from expost.risk.answer import Identifiability
from expost.risk.composition import CompositionComparison
from expost.risk.curves import RiskCurves
from expost.selection.private import SelectionCost
from expost.selection.tuning import SelectedRegularization
from expost.types import Audience

__all__ = ["PLOTS", "TORCH_PLOTS", "audience_of", "plot"]

Drawn = Display | PanelsDisplay
Maker = Callable[..., Drawn]

# The least false positive rate of a promise's curve.
_LEAST_RATE = 1e-4
_RATES = 61
_STYLES = ((BLUE, "-"), (ORANGE, "--"), (INK, "-."), (GREY, ":"))


def plot(result: Any, *, ax: Any = None, axes: Any = None, **options: Any) -> Drawn:
    """The display of ``result``, drawn into ``ax`` (``axes`` of several) or a figure of its own."""
    display = _maker(type(result))(result, **options).of(audience_of(result))
    if isinstance(display, PanelsDisplay):
        if ax is not None:
            rows, columns = display.grid
            raise InvalidInput(
                f"ax: this figure has {rows * columns} panels; pass axes=, one for each of them."
            )
        return display.plot(axes)
    if axes is not None:
        raise InvalidInput("axes: this figure has one panel; pass ax=.")
    return display.plot(ax)


def audience_of(result: Any) -> Audience:
    """The mark of a result; one that does not say is for the curator only."""
    audience = getattr(result, "audience", Audience.FAIL)
    return audience if isinstance(audience, Audience) else Audience.FAIL


def _maker(kind: type) -> Maker:
    for one in kind.__mro__:
        maker = PLOTS.get(one) or TORCH_PLOTS.get(f"{one.__module__}.{one.__qualname__}")
        if maker is not None:
            return maker
    raise InvalidInput(f"result: a {kind.__name__} has no figure.")


def _audit(found: Audit, *, kind: str = "roc") -> Drawn:
    """``kind``: "roc", or "exposures": what theory says beside what attacks do."""
    if _checks.one_of("kind", kind, ("roc", "exposures")) == "roc":
        return RocDisplay.from_audit(found)
    return ExposureDisplay.from_audit(found)


def _identifiability(found: Identifiability, *, kind: str | None = None) -> Drawn:
    """``kind``: "epsilon", D5.3 Fig. 4.2 around the asked ε; or "rates", what any test can do.

    None: the first, where there is a finite ε to draw it around.
    """
    epsilon = found.epsilon
    if kind is None:
        kind = "epsilon" if epsilon is not None and 0 < epsilon < np.inf else "rates"
    if _checks.one_of("kind", kind, ("epsilon", "rates")) == "epsilon":
        return RiskDisplay.from_identifiability(found)
    rates = np.geomspace(_LEAST_RATE, 1.0, _RATES)
    routes = [route for route in found.routes if route.promise is not None]
    curves = []
    for route, (colour, style) in zip(routes, _STYLES, strict=False):
        assert route.promise is not None
        reached = np.array([route.promise.true_positive_rate(float(rate)) for rate in rates])
        curves.append(Curve(x=rates, y=reached, label=route.name, colour=colour, style=style))
    coin = Curve(x=rates, y=rates, label="a coin", colour=GREY, style=":")
    return CurvesDisplay(
        curves=(*curves, coin),
        xlabel="others taken for members (false positive rate)",
        ylabel="members found, at most",
        title=found.question,
    )


def _roc(found: Roc) -> Drawn:
    floor = float(np.min(found.fpr[found.fpr > 0]))
    points = tuple(
        CurvePoint(false_positive_rate=float(false), true_positive_rate=float(true))
        for false, true in zip(found.fpr, found.tpr, strict=True)
    )
    return RocDisplay(curves={f"AUC {found.area:.3f}": points}, promised=(), floor=min(floor, 0.1))


def _ledger(found: Ledger, *, delta: float | None = None) -> Drawn:
    """``delta``: at which all releases are composed; None: by addition alone."""
    return LedgerDisplay.from_ledger(found, delta)


PLOTS: Mapping[type, Maker] = {
    Answer: plots_named.answer,
    AttackFigures: plots_named.attack_figures,
    Audit: _audit,
    AuditSweep: AuditSweepDisplay.from_sweep,
    Comparison: ComparisonDisplay.from_comparison,
    CompositionComparison: plots_named.composition,
    Coverage: plots_named.coverage,
    DefenceTable: plots_named.defence_table,
    Disparity: plots_named.disparity,
    EpochTable: plots_training.epoch_table,
    EpsilonChoice: TransitionDisplay.from_choice,
    EstimatedLosses: plots_rows.estimated_losses,
    Explanation: GroupsDisplay.from_groups,
    Grouping: GroupsDisplay.from_groups,
    Identifiability: _identifiability,
    IndividualEpsilon: plots_rows.individual_epsilon,
    Ledger: _ledger,
    LowerBound: plots_named.lower_bound,
    Neighbours: plots_rows.neighbours,
    Profile: plots_rows.privacy_profile,
    PublishedReport: plots_named.published_report,
    Release: plots_named.release,
    RiskCurves: lambda found: RiskDisplay(curves=found, audience=found.audience),
    Roc: _roc,
    RowIdentifiability: plots_rows.row_identifiability,
    RowLosses: plots_rows.row_losses,
    SelectedRegularization: plots_named.selected_regularization,
    SelectionCost: plots_named.selection_cost,
    Snapshots: plots_training.snapshots,
    Transcript: plots_training.transcript,
}

TORCH_PLOTS: Mapping[str, Maker] = {
    "expost.torch._adversarial.AdversarialTraining": plots_training.adversarial_training,
    "expost.torch._experiment.Experiment": plots_training.experiment,
    "expost.torch._federated.FederatedGame": plots_training.federated_game,
    "expost.torch._federated.FederatedRun": plots_training.federated_run,
    "expost.torch._sensitivity.Sensitivity": plots_training.sensitivity,
    "expost.torch._track.Tracker": plots_training.training,
    "expost.torch._training.Training": plots_training.training,
}
