"""Shadow models: a classifier that learned from models of its own what members look like.

Shokri, Stronati, Song, Shmatikov (2017), *Membership inference attacks against machine learning
models*, section V: shadow models are trained as the target was, on rows the attacker knows; what
they say of rows that were in and of rows that were not is a labelled set, and on it one attack
model for each class of the target learns to tell the two. Here the shadows are the references,
the attack model sees the largest probabilities in order (``views``) and φ of the row's own label,
and is a boosted ensemble of small trees in the place of the paper's networks.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from expost import _checks
from expost._numerics import row_blocks
from expost.auditing.evidence import Confidences, Evidence
from expost.auditing.training import one_thread
from expost.errors import InvalidInput
from expost.notices import FILTER_LOCK
from expost.types import FloatArray, IntArray

__all__ = ["Shadow"]

# Examples that one attack model learns from, at most.
_MOST_EXAMPLES = 2**17
# Of each kind: a class with fewer is left to the model of all classes.
_FEWEST = 100


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """log odds of "member" by the attack model of the row's class; see the module.

    Each model's log odds are less those of its own examples, so that classes with more members
    among the shadows' rows start from 0 too, and scores of different classes compare. What it
    learns is the same for every row of a class: it does not know that a row is easy for all models.
    """

    name: ClassVar[str] = "shadow"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "both", "views"})
    description: ClassVar[str] = (
        "a classifier that learned from other models what members look like (Shokri 2017)"
    )
    white_box: ClassVar[bool] = False

    trees: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        _checks.whole("trees", self.trees, least=1)
        _checks.whole("seed", self.seed, least=0)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """(n,) scores."""
        everyone = np.arange(evidence.rows)
        common = self._learn(evidence, everyone, fewest=1)
        if common is None:
            raise InvalidInput(
                "inside: the shadow models have no members or no non-members among the rows; train"
                " references on a part of the rows."
            )
        scores = np.empty(evidence.rows)
        for label in np.unique(evidence.labels):
            rows = everyone[evidence.labels == label]
            own = self._learn(evidence, rows, fewest=_FEWEST) if len(rows) < len(everyone) else None
            model, start = common if own is None else own
            for block in row_blocks(len(rows), evidence.views.shape[1] + 1):
                chosen = rows[block]
                features = _features(evidence.views[chosen], evidence.confidence[chosen])
                scores[chosen] = model.decision_function(features) - start
        return scores

    def _learn(
        self, evidence: Evidence, rows: IntArray, *, fewest: int
    ) -> tuple[Any, float] | None:
        """The attack model of these rows and the log odds of its examples; None for too few."""
        shadows = len(evidence.reference_views)
        flat = np.arange(shadows * len(rows))
        if len(flat) > _MOST_EXAMPLES:
            generator = np.random.default_rng([self.seed, len(rows)])
            flat = np.sort(generator.choice(len(flat), _MOST_EXAMPLES, replace=False))
        model, row = flat // len(rows), rows[flat % len(rows)]
        truth = np.asarray(evidence.inside)[model, row]
        members = int(truth.sum())
        if min(members, len(truth) - members) < fewest:
            return None
        features = _features(evidence.reference_views[model, row], evidence.references[model, row])
        # Imported where it learns: it imports half of scikit-learn.
        from sklearn.ensemble import HistGradientBoostingClassifier

        learner = HistGradientBoostingClassifier(
            max_iter=self.trees,
            # Small: the examples of a row under s shadows are far from s rows.
            max_leaf_nodes=4,
            min_samples_leaf=max(20, len(truth) // 16),
            early_stopping=False,
            random_state=self.seed,
        )
        # In threads of its own the learner would change the filters of warnings in each of them.
        with FILTER_LOCK, one_thread():
            learner.fit(features, truth)
        return learner, float(np.log(members / (len(truth) - members)))


def _features(views: Confidences, confidence: Confidences) -> Confidences:
    """(n, c + 1): what is known of each row and model."""
    return np.column_stack([views, confidence]).astype(np.float32)
