"""Shadow models: a classifier that learned from other models to recognise members.

Shokri, Stronati, Song, Shmatikov (2017), *Membership inference attacks against machine learning
models*, section V: shadow models are trained as the target was, on rows the attacker knows. Their
answers for members and non-members are a labelled data set, on which one attack model for each
class of the target is trained. Here the shadows are the references. The attack model sees the
largest probabilities in order (``views``) and φ of the row's own label, and is a boosted ensemble
of small trees instead of the paper's networks.
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

# The largest number of examples of one attack model.
_MOST_EXAMPLES = 2**17
# A class with fewer members or non-members uses the model of all classes.
_FEWEST = 100


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """The log odds of "member" by the attack model of the row's class; see the module.

    The log odds of a model's own examples are subtracted, so that scores of different classes are
    comparable. The attack model is the same for every row of a class: it does not know that a row
    is easy for all models.
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
        _checks.integer("trees", self.trees, least=1)
        _checks.integer("seed", self.seed, least=0)

    def __call__(self, evidence: Evidence) -> FloatArray:
        """Return (n,) scores."""
        all_rows = np.arange(evidence.rows)
        common = self._learn(evidence, all_rows, fewest=1)
        if common is None:
            raise InvalidInput(
                "inside: the shadow models have no members or no non-members among the rows; train"
                " references on a part of the rows."
            )
        scores = np.empty(evidence.rows)
        for label in np.unique(evidence.labels):
            rows = all_rows[evidence.labels == label]
            own = self._learn(evidence, rows, fewest=_FEWEST) if len(rows) < len(all_rows) else None
            model, start = common if own is None else own
            for block in row_blocks(len(rows), evidence.views.shape[1] + 1):
                chosen = rows[block]
                features = _features(evidence.views[chosen], evidence.confidence[chosen])
                scores[chosen] = model.decision_function(features) - start
        return scores

    def _learn(
        self, evidence: Evidence, rows: IntArray, *, fewest: int
    ) -> tuple[Any, float] | None:
        """Return the attack model of these rows and its examples' log odds; None for too few."""
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
        # Imported here: it imports half of scikit-learn.
        from sklearn.ensemble import HistGradientBoostingClassifier

        learner = HistGradientBoostingClassifier(
            max_iter=self.trees,
            # Small: s examples of one row are less informative than s rows.
            max_leaf_nodes=4,
            min_samples_leaf=max(20, len(truth) // 16),
            early_stopping=False,
            random_state=self.seed,
        )
        # The learner's own threads would change the warning filters of each thread.
        with FILTER_LOCK, one_thread():
            learner.fit(features, truth)
        return learner, float(np.log(members / (len(truth) - members)))


def _features(views: Confidences, confidence: Confidences) -> Confidences:
    """Return (n, c + 1) the features of each row under a model."""
    return np.column_stack([views, confidence]).astype(np.float32)
