"""Log the results of expost to the active run of MLflow: public scalars, and verdicts on them.

    with mlflow.start_run():
        log_expost(["report", "audit"], "policy.toml")

By default nothing is logged that depends on the data: ε, δ, the number of rows, the mechanism, and
the verdicts on limits of public quantities. A tracking server is read by many people, so certainty,
attack figures and the verdicts on them are logged only with ``audience="curator-only"``.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from expost.policy import Finding, Policy, PolicyCheck, Verdict, check
from expost.release import Release
from expost.types import Audience

__all__ = ["log_expost"]


def log_expost(
    results: Sequence[str | Path],
    policy: Policy | str | Path,
    *,
    audience: str = "public",
    tracking: Any = None,
) -> PolicyCheck:
    """Compare results with a policy, and log the outcome to the active run.

    Parameters
    ----------
    results : Sequence[str | Path]
        Folders that expost commands wrote, or files in them.
    policy : Policy | str | Path
        The policy, or the path of a policy.toml.
    audience : {"public", "curator-only"}
        The readers of the tracking server; curator-only figures are logged for the latter alone.
    tracking : Any, optional
        What logs; None: the module ``mlflow``.

    Returns
    -------
    PolicyCheck
        The verdicts.
    """
    reader = Audience(audience)
    if tracking is None:
        import mlflow

        tracking = mlflow
    outcome = check(results, policy)
    for path in map(Path, results):
        model = path / "model.json" if path.is_dir() else path
        if model.name == "model.json" and model.exists():
            for name, value in Release.load(model).scalars().items():
                tracking.log_param(f"expost.{name}", value)
    # Of two limits that have one name, the verdict that is worse is logged last and stays.
    ordered = (Verdict.SATISFIED, Verdict.NOT_ANSWERABLE, Verdict.VIOLATED)
    for finding in (each for verdict in ordered for each in outcome.of(verdict)):
        if finding.is_public or reader is Audience.CURATOR_ONLY:
            name = _name(finding)
            tracking.set_tag(f"expost.verdict.{name}", finding.verdict.value)
            value = finding.fields(reader).get("measured")
            # MLflow plots metrics, and an infinite one has no place in a plot.
            if isinstance(value, float) and math.isfinite(value):
                tracking.log_metric(f"expost.{name}", value)
    if outcome.audience is Audience.PUBLIC or reader is Audience.CURATOR_ONLY:
        tracking.set_tag("expost.verdict", outcome.verdict.value)
    tracking.set_tag("expost.audience", reader.value)
    return outcome


def _name(finding: Finding) -> str:
    """Return the name of a limit in MLflow, as attacks.tpr.0.01."""
    limit = finding.limit
    parts = [limit.quantity.key]
    if limit.at is not None:
        # Two limits of one key differ in their quantity or in their level.
        parts += [] if parts[0].endswith(f".{limit.name}") else [limit.name]
        parts.append(f"{limit.at:g}")
    elif isinstance(limit.limit, str) and limit.name == "attack":
        parts.append(limit.limit)
    return ".".join(parts)
