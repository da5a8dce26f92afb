"""The package and its documentation use the vocabulary of the field, one term for each notion."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Words of the old vocabulary, and what to write instead.
INSTEAD = {
    r"promis(?:e|es|ed|ing)": "guarantee",
    r"beliefs?": "posterior, or certainty",
    r"surest|how sure": "most certain",
    r"told apart": "per-row AUC, distinguished",
    r"whoever|whichever|whosoever": "the subject itself",
    r"somebody|nobody": "a person, no one",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "fix",
    r"gone on with|goes on with": "resumed",
    r"gives? (?:it|them|her|him|each row|a row|rows?) away": "reveals",
    r"speaks? against|vouch(?:es)? for": "a sentence about the evidence",
    r"truth values?|whole numbers?": "boolean, integer",
}
FORBIDDEN = re.compile(r"\b(?:" + "|".join(INSTEAD) + r")\b", re.IGNORECASE)
# The papers have terms of their own, and the changelog names what was renamed.
LEFT_OUT = ("docs/papers/", "docs/evidence/", "docs/theory/errata.md", "CHANGELOG.md")


def texts():
    for pattern in ("src/**/*.py", "src/**/*.html", "src/**/*.js", "docs/**/*.md", "*.md"):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(LEFT_OUT):
                yield pytest.param(path, id=name)


@pytest.mark.parametrize("path", list(texts()))
def test_no_word_of_the_old_vocabulary(path):
    lines = path.read_text("utf-8").splitlines()
    found = [
        f"{number}: {match.group()}"
        for number, line in enumerate(lines, 1)
        for match in FORBIDDEN.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["the guarantee that it promises", "Her belief", "It gives each row away.", "mended"]
)
def test_old_words_are_seen(text):
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("text", ["compromise", "recommended", "a posterior of 60 %", "renewed"])
def test_other_words_are_not(text):
    assert not FORBIDDEN.search(text)
