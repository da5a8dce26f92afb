"""``compare_defences``: what each defence costs, and what it takes from attackers.

The game
--------
Half of the rows of each class are members, chosen at random in each repetition, the same for every
defence. A model is trained on the members. An attacker who does not know them scores every row;
attack and threshold are chosen on four fifths of the rows, whose membership is given, and evaluated
on the remaining fifth, in turn.

No guarantee is beaten by this in expectation. A row is a member as often as not; where it is none,
another row of its class and of its fifth is one in its place, and nothing else is different. That
is the game of a row replaced, so that the accuracy is at most (1 + advantage)/2 with the advantage
of that relation. A guarantee for a row more or less gives at most ½ + advantage: two steps.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expost import _checks
from expost._counts import Share
from expost.auditing.attacks import available
from expost.auditing.attacks.thresholds import best_cut
from expost.auditing.evidence import Evidence, Flags
from expost.auditing.references import References, evidence_of, no_references, train_references
from expost.auditing.targets import target_of
from expost.auditing.training import without_warnings
from expost.data import UnitBall
from expost.errors import InvalidInput, MissingExtra, require
from expost.types import FloatArray, IntArray
from papers.lecture.defence import Defence, LogisticDefence, NamedDefence, Predict
from papers.lecture.table import Cell, DefenceRow, DefenceTable

__all__ = ["compare_defences"]

Progress = Callable[[int, int], None]

_FOLDS = 5
# Members and others by whom an attack is chosen and judged: fewer say nothing.
_LEAST_ROWS = 20


def compare_defences(
    X: Any,
    y: Any,
    *,
    defences: Sequence[Defence] | Mapping[str, Any] | None = None,
    regularization: float = 1e-6,
    regularizations: Iterable[float] = (1e-3, 1e-2, 1e-1),
    epsilons: Iterable[float] = (1.0, 10.0, 100.0),
    reference: tuple[Any, Any] | None = None,
    data_norm: float | None = None,
    references: int = 16,
    repetitions: int = 1,
    confidence: float = 0.95,
    random_state: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> DefenceTable:
    """Train, test and attack accuracy without a defence and with each (the lecture's table).

    ``X, y``             the pool: half of it is trained on, half is tested on, all is attacked.
    ``defences``         the rows of the table, the model without a defence first: ``Defence``
                         values, or by name estimators with ``predict_proba`` and functions
                         (X, y, seed) -> predict_proba, y the numbers of classes. None: logistic
                         regression with ``regularization``, with stronger ``regularizations``, by
                         output (two classes) and objective perturbation and by DP-SGD at each of
                         ``epsilons``, and by adversarial regularisation where there are
                         ``reference`` rows. The last two need the extra ``torch``.
    ``reference``        (X, y) more rows of the same source, neither members nor judged on.
    ``data_norm``        a bound on ∥x∥; None reads it from the pool.
    ``references``       models trained like each defence's for the attacks that need some (LiRA,
                         RMIA, shadow models); 0 leaves the loss threshold alone.
    ``repetitions``      how often rows are split again and a model is trained.
    ``random_state``     of all of it.
    ``workers``          processes for the references.
    ``progress``         called with (models trained, models in all).
    """
    rows, labels = _pool(X, y)
    repetitions = _checks.integer("repetitions", repetitions, least=1)
    epsilons, regularizations = (
        _listed("epsilons", epsilons),
        _listed("regularizations", regularizations),
    )
    numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    notices: list[str] = []
    if defences is None:
        others = None if reference is None else _referred(reference, rows, labels)
        chosen = _default_defences(
            rows,
            numbers,
            others,
            data_norm=data_norm,
            regularizations=(regularization, *regularizations),
            epsilons=epsilons,
            notices=notices,
        )
    else:
        chosen = _checked(defences)
    game = _Game(
        X=rows,
        y=numbers,
        references=_references(references),
        confidence=_checks.probability("confidence", confidence),
        seed=_checks.integer("random_state", random_state, least=0),
        workers=workers,
        counted=_Counted(progress, len(chosen), references, repetitions),
    )
    partings = game.partings(repetitions)
    return DefenceTable(
        rows=tuple(game.play(order, defence, partings) for order, defence in enumerate(chosen)),
        members=int(partings[0].sum()),
        others=int((~partings[0]).sum()),
        references=references,
        confidence=confidence,
        notices=tuple(notices),
    )


# -- the game --------------------------------------------------------------------------------------


class _Counted:
    """Progress over all models of all defences."""

    def __init__(
        self, progress: Progress | None, defences: int, references: int, repetitions: int
    ) -> None:
        self._progress, self._done = progress, 0
        self._total = defences * (references + repetitions)

    def one_more(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)

    def of_references(self, finished: int, _: int) -> None:
        """Record the reference models that are finished; called once before the first of them."""
        if finished:
            self.one_more()


class _Repetition(NamedTuple):
    """What one model gave, and the attacks that were chosen on it, one a fold."""

    train: Share
    test: Share
    attack: Share
    by: list[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Game:
    """The pool, and what is the same for every defence."""

    X: FloatArray
    y: IntArray
    references: int
    confidence: float
    seed: int
    workers: int | None
    counted: _Counted

    def partings(self, repetitions: int) -> list[Flags]:
        """Who is a member in each repetition: every other row of each class, in random order."""
        return [
            half_of_each_class(self.y, np.random.default_rng((self.seed, 0, number)))
            for number in range(repetitions)
        ]

    def play(self, order: int, defence: Defence, partings: list[Flags]) -> DefenceRow:
        """Return the row of one defence; ``place`` sets its seeds."""
        complete = _Complete(defence, int(self.y.max()) + 1)
        target = target_of(complete.trained, self.y)
        limit = defence.attack_limit(self.X[partings[0]], self.y[partings[0]])
        references = no_references(target, self.X, self.y)
        if self.references:
            references = train_references(
                target,
                self.X,
                self.y,
                models=self.references,
                random_state=self._seed(1, order, 0),
                workers=self.workers,
                progress=self.counted.of_references,
            )
        repetitions = [
            self._repetition(complete, references, members, self._seed(2, order, number))
            for number, members in enumerate(partings)
        ]
        by = Counter(name for repetition in repetitions for name in repetition.by).most_common(1)[
            0
        ][0]
        return DefenceRow(
            name=defence.name,
            train=Cell(shares=tuple(repetition.train for repetition in repetitions)),
            test=Cell(shares=tuple(repetition.test for repetition in repetitions)),
            attack=Cell(shares=tuple(repetition.attack for repetition in repetitions)),
            limit=limit,
            by=by,
        )

    def _repetition(
        self, defence: "_Complete", references: References, members: Flags, seed: int
    ) -> "_Repetition":
        with without_warnings():
            model = defence.trained(self.X[members], self.y[members], seed)
        self.counted.one_more()
        right = np.argmax(model(self.X), axis=1) == self.y
        target = target_of(model, self.y, train=defence.trained)
        evidence = evidence_of(target, references, self.X, self.y)
        guesses, names = strongest_attack(evidence, members, seed)
        return _Repetition(
            train=self._share(right[members]),
            test=self._share(right[~members]),
            attack=self._share(guesses == members),
            by=names,
        )

    def _share(self, hits: Flags) -> Share:
        return Share(hits=int(hits.sum()), trials=len(hits), confidence=self.confidence)

    def _seed(self, *key: int) -> int:
        return int(np.random.SeedSequence((self.seed, *key)).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class _Complete:
    """A defence that is only asked to learn from rows of every class."""

    defence: Defence
    classes: int

    def trained(self, X: Any, y: Any, seed: int) -> Predict:
        missing = self.classes - len(np.unique(y))
        if missing:
            raise InvalidInput(
                f"y: {missing} of {self.classes} classes are missing from a random half of the"
                " rows; leave classes of few rows out, or merge them."
            )
        return self.defence.trained(X, y, seed)


def strongest_attack(evidence: Evidence, truth: Flags, seed: int) -> tuple[Flags, list[str]]:
    """Return whether each row is taken for a member, (n,), and the attack chosen in each fold.

    For each fold the attack and the threshold are those with the largest TPR − FPR on the others.
    """
    scores = {name: attack(evidence) for name, attack in available(evidence).items()}
    rng = np.random.default_rng(seed)
    fold = np.empty(len(truth), dtype=np.int64)
    for rows in (np.flatnonzero(truth), np.flatnonzero(~truth)):
        fold[rng.permutation(rows)] = np.arange(len(rows)) % _FOLDS
    guesses = np.empty(len(truth), dtype=np.bool_)
    names = []
    for part in range(_FOLDS):
        known = fold != part
        gains = {name: _gain(values[known], truth[known]) for name, values in scores.items()}
        best = max(gains, key=lambda name: gains[name][0])
        guesses[~known] = scores[best][~known] >= gains[best][1]
        names.append(best)
    return guesses, names


def _gain(scores: FloatArray, truth: Flags) -> tuple[float, float]:
    """Return (TPR − FPR, threshold), where it is largest."""
    cut = best_cut(scores, truth)
    assert cut is not None, "every fold leaves members and others"
    guesses = scores >= cut
    return float(np.mean(guesses[truth]) - np.mean(guesses[~truth])), cut


def half_of_each_class(y: IntArray, rng: np.random.Generator) -> Flags:
    """Return half of the rows of each class, give or take one, and half of all, rounded down."""
    order = np.lexsort((rng.random(len(y)), y))
    members = np.zeros(len(y), dtype=np.bool_)
    first = int(rng.integers(2)) if len(y) % 2 == 0 else 1
    members[order[first::2]] = True
    return members


# -- what is compared ------------------------------------------------------------------------------


def _default_defences(
    X: FloatArray,
    y: IntArray,
    reference: tuple[FloatArray, IntArray] | None,
    *,
    data_norm: float | None,
    regularizations: tuple[float, ...],
    epsilons: tuple[float, ...],
    notices: list[str],
) -> tuple[Defence, ...]:
    if data_norm is None:
        # Of the pool, not of the members: the attacker knows the pool, and learns nothing by it.
        data_norm = UnitBall.largest_norm(X)
        notices.append(
            "data_norm was read from the pool: before a release give a bound known without it."
        )
    plain = [
        LogisticDefence(regularization=value, data_norm=data_norm) for value in regularizations
    ]
    kinds: tuple[str, ...] = ("output", "objective")
    if int(y.max()) > 1:
        kinds = kinds[1:]
        notices.append("output perturbation was left out: it takes two classes only.")
    private = [
        replace(plain[0], regularization="auto", epsilon=epsilon, mechanism=kind)
        for kind in kinds
        for epsilon in epsilons
    ]
    try:
        require("torch", caller="a table with DP-SGD and adversarial regularisation", extra="torch")
    except MissingExtra as error:
        notices.append(f"left out: {error}")
        return (*plain, *private)
    return (*plain, *private, *_networks(X, reference, data_norm, epsilons, notices))


def _networks(
    X: FloatArray,
    reference: tuple[FloatArray, IntArray] | None,
    data_norm: float,
    epsilons: tuple[float, ...],
    notices: list[str],
) -> list[Defence]:
    """Softmax regression by DP-SGD; a network plain, and against an attacker in two ways."""
    made = import_module("papers.lecture.torch_defences")
    # Entries of about 1, whatever the unit of the data.
    scale = float(np.sqrt(X.shape[1])) / data_norm
    defences: list[Defence] = [
        made.DPSGDDefence(epsilon=epsilon, scale=scale) for epsilon in epsilons
    ]
    if reference is None:
        notices.append(
            "adversarial regularisation was left out: it needs reference=(X, y), rows that are"
            " neither trained on nor judged on."
        )
        return defences
    plain = made.AdversarialDefence(weight=0.0, reference=reference, scale=scale)
    both_ways = replace(plain, weight=10.0, through_reference=True)
    return [*defences, plain, replace(plain, weight=1.0), both_ways]


# -- what is passed in -----------------------------------------------------------------------------


def _pool(X: Any, y: Any) -> tuple[FloatArray, NDArray[Any]]:
    rows, labels = _checks.matrix(X), np.asarray(y)
    if labels.shape != (len(rows),) or labels.dtype.kind not in "biufSU":
        raise InvalidInput(
            f"y: must be one label, a number or a text, for each of {len(rows)} rows."
        )
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise InvalidInput("y: holds NaN or infinite values; drop or fill them.")
    if len(rows) < 2 * _LEAST_ROWS:
        raise InvalidInput(
            f"X has {len(rows)} rows: must have at least {2 * _LEAST_ROWS}, half of them members."
        )
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < 2 or not counts.min() >= 2:
        raise InvalidInput(
            f"y: has {len(counts)} classes, the rarest of {counts.min()} rows; must have at least"
            " two classes of two rows each."
        )
    return rows, labels


def _referred(
    reference: tuple[Any, Any], pool: FloatArray, labels: NDArray[Any]
) -> tuple[FloatArray, IntArray]:
    """Return the reference rows, their labels numbered as those of the pool."""
    if not isinstance(reference, tuple | list) or len(reference) != 2:
        raise InvalidInput("reference: must be a pair (X, y).")
    rows = _checks.matrix(reference[0], name="reference")
    if rows.shape[1] != pool.shape[1]:
        raise InvalidInput(
            f"reference: has {rows.shape[1]} columns: must have the {pool.shape[1]} of X."
        )
    theirs, classes = np.asarray(reference[1]), np.unique(labels)
    if theirs.shape != (len(rows),) or not np.all(np.isin(theirs, classes)):
        raise InvalidInput("reference: must have one label a row, of the classes of y.")
    return rows, np.searchsorted(classes, theirs).astype(np.int64)


def _checked(defences: Sequence[Defence] | Mapping[str, Any]) -> tuple[Defence, ...]:
    if isinstance(defences, Mapping):
        for name, method in defences.items():
            if not (hasattr(method, "predict_proba") and hasattr(method, "fit")) and not callable(
                method
            ):
                raise InvalidInput(
                    f"defences[{name!r}]: is a {type(method).__name__}; must have fit and"
                    " predict_proba, or be a function (X, y, seed) -> predict_proba."
                )
        defences = [
            NamedDefence(name=str(name), method=method) for name, method in defences.items()
        ]
    checked = tuple(defences) if hasattr(defences, "__iter__") else ()
    if not checked or not all(isinstance(defence, Defence) for defence in checked):
        raise InvalidInput(
            "defences: must be at least one, each with a name, attack_limit(X, y) and"
            " trained(X, y, seed) -> predict_proba; estimators go by name, {name: estimator}."
        )
    names = [defence.name for defence in checked]
    if len(set(names)) < len(names):
        raise InvalidInput(f"defences: {len(names)} have {len(set(names))} names; name each apart.")
    return checked


def _listed(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"{name}={values!r}: must be a list of numbers.")
    return tuple(values)


def _references(value: Any) -> int:
    count = _checks.integer("references", value, least=0)
    if count == 1:
        raise InvalidInput("references=1: must be 0, or at least 2, for rows to be in and out.")
    return count
