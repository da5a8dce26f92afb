"""The answer of a choice of ε in a few sentences.

Numbers only, so that no name from outside stands in them.
"""

from expost.epsilon.choice import EpsilonChoice, posterior_sentences, transition_sentence
from expost.report.parts import Headline, one_line
from expost.report.wording import grouped

__all__ = ["epsilon_answer", "epsilon_headline"]

_ADVICE = {
    "none": "Gather more rows, drop columns, allow a larger posterior, or release no model.",
    "useless": "Take other columns or more rows; no epsilon helps.",
}


def epsilon_headline(choice: EpsilonChoice, *, command: bool) -> Headline:
    """Return the verdict, what an attacker learns there, and what to do next.

    ``command``  whether a command is shown.
    """
    typed = "the command below does" if command else "expost profile does"
    exposed = " ".join(posterior_sentences(choice))
    return Headline(
        epsilon=grouped(one_line(choice.reasons[0])),
        exposed=exposed or "No posterior is within the limit.",
        advice=_ADVICE.get(
            choice.verdict,
            f"If that posterior is acceptable, release one model at this ε ({typed}, and says what"
            " it reveals); if not, ask again with a smaller max_posterior.",
        ),
    )


def epsilon_answer(choice: EpsilonChoice) -> tuple[str, ...]:
    """Return the other reasons, and where the transition is."""
    others = (*map(one_line, choice.reasons[1:]), transition_sentence(choice))
    return tuple(map(grouped, others))
