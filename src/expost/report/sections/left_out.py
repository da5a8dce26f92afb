"""Models without noise: what each row does to the model and to its own prediction."""

from collections.abc import Iterator

from expost.numbers import count, number
from expost.profiles.left_out import LeftOut, TopRows, largest_changes
from expost.profiles.profile import Profile
from expost.report.document import Block, Section, Table, Text, Tile, table
from expost.report.figure import Figure
from expost.report.sections.bounds import up
from expost.report.sections.ranks import ranked_figure

__all__ = ["NOT_LEAKAGE", "left_out_figure", "left_out_section", "left_out_tile", "top_sentence"]

NOT_LEAKAGE = (
    "A model without noise has no privacy guarantee, and influence is not leakage: a row that"
    " hardly moves the model can still be inferred from it. Only noise (`expost epsilon`) or an"
    " audit (`expost audit`) says more."
)


def left_out_section(profile: Profile) -> Section | None:
    """Return the leave-one-out predictions of all rows; None where they are not known."""
    left_out = profile.left_out
    if left_out is None:
        return None
    blocks: list[Block] = [
        Text(
            text="Each row is predicted by the exact model of all other rows: leave-one-out"
            " cross-validation. The gap to the scores with the row is how far the model overfits."
        ),
        _scores(left_out),
        *(Text(text=sentence) for sentence in _sentences(profile, left_out)),
    ]
    drawn = left_out_figure(profile)
    if drawn is not None:
        blocks.insert(1, drawn)
    return Section(
        id="left-out",
        title="Predictions without each row",
        blocks=tuple(blocks),
        nav="Exposure",
    )


def _scores(left_out: LeftOut) -> Table:
    """Return the scores with and without the row, and the certified interval of the second."""
    scores = left_out.scores
    lines = [(scores.measure, scores.score)]
    lines += [("AUC", scores.auc)] if scores.auc else []
    lines += [("log loss (nats)", scores.log_loss)] if scores.log_losses else []
    return table(
        lines,
        ("score", lambda line: line[0], str),
        ("with the row", lambda line: line[1][0], "{:.4f}".format),
        ("without the row", lambda line: line[1][1], "{:.4f}".format),
        ("certified from", lambda line: min(line[1][2:]), _down),
        ("to", lambda line: max(line[1][2:]), _up),
    )


def _down(value: float) -> str:
    return number(value, "down", 4)


def _up(value: float) -> str:
    return number(value, "up", 4)


def _sentences(profile: Profile, left_out: LeftOut) -> Iterator[str]:
    key = left_out.row if profile.ids is None else profile.key(left_out.row)
    size = up(left_out.change)
    if left_out.is_probability:
        size = f"{up(100 * left_out.change)} percentage points"
    yield f"The largest change of a row's own prediction is at most {size}: row {key}."
    if left_out.scores.classes:
        yield _flips(left_out) + "."


def _flips(left_out: LeftOut) -> str:
    """Return how many rows change their predicted class."""
    rows = f"{count(left_out.flipped)} row{'' if left_out.flipped == 1 else 's'}"
    change = "changes its" if left_out.flipped == 1 else "change their"
    known = f"{rows} {change} predicted class without the row"
    if not left_out.undecided:
        return known
    more = f"{count(left_out.undecided)} more {'is' if left_out.undecided == 1 else 'are'}"
    return f"{known}, {more} undecided"


def left_out_figure(profile: Profile) -> Figure | None:
    """Return the change of each row's own prediction by rank; None for rows in blocks."""
    if profile.losses is None or profile.losses.predictors is None:
        return None
    own = profile.losses.predictors
    change = abs(own.prediction_without - own.prediction)
    if not change.max(initial=0.0) > 0:
        return None
    return ranked_figure(
        change,
        key="left-out",
        title="Change of each row's own prediction, by rank",
        label="change of the probability" if own.is_probability else "change of the prediction",
        description="How much each row's own prediction changes without it, the largest first."
        f" The largest change is at most {up(float(largest_changes(own).max()))}.",
    )


def left_out_tile(left_out: LeftOut) -> Tile:
    """Return the score without the row, next to that with it."""
    scores = left_out.scores
    values, name = (scores.auc, "AUC") if scores.auc else (scores.score, scores.measure)
    lines = [f"{values[0]:.3f} with the row"]
    if scores.classes:
        lines.append(_flips(left_out))
    return Tile(label="Leave-one-out", value=f"{name} {values[1]:.3f}", lines=tuple(lines))


def top_sentence(top: TopRows | None) -> str:
    """Return which rows are exact, and whether they certifiably are the top ones."""
    if top is None:
        return "No row was refined."
    rows = f"{count(top.top)} row{'' if top.top == 1 else 's'}"
    if top.is_certified:
        return (
            f"The {rows} with the largest shifts are exact ({count(top.refined)} were refined):"
            " certifiably no other row moves the model farther."
        )
    return (
        f"{count(top.refined)} rows were refined, the limit for top = {count(top.top)}. Only the"
        f" first {count(top.certified)} ranks are certified: rows that were not refined may move"
        " the model as far as the others. A larger top refines more."
    )
