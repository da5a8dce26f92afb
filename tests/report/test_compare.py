"""The verdict on a released ε next to a choice of ε agrees with the figures of both."""

import math
from dataclasses import replace

import pytest

import expost
from expost.report import document_of
from expost.report.compare import compared
from expost.report.document import Document, Page, Verdict
from expost.types import Audience

from .epsilon_choices import chosen, data

MODEL = {"mechanism": "objective", "noise": "gaussian", "loss": "logistic", "n": 100, "d": 3}
RELEASED = MODEL | {
    "unit": "row", "epsilon": 0.5, "noiseless": False, "seeded": False, "largest_loss": 0.4,
    "past_certainty": 0,
}  # fmt: skip
CHOSEN = MODEL | {"recommended": 0.5, "ceiling": 1.0, "max_posterior": 0.75, "largest_loss": 1.0}


def document(kind, facts, priority=50):
    verdict = Verdict(text=f"the {kind}", more="What then.", tone="good", priority=priority)
    return Document(
        kind=kind, audience=Audience.CURATOR_ONLY, title=kind, verdict=verdict, facts=facts
    )


def judged(profile=None, choice=None, **options):
    page = Page(
        documents=(
            document("profile", RELEASED | (profile or {}), **options),
            document("epsilon", CHOSEN | (choice or {})),
        )
    )
    return compared(page).get("profile")


@pytest.mark.parametrize(
    ("profile", "choice", "text", "tone"),
    [
        ({}, {}, "the recommended one. It keeps the limit on the posterior (75 %).", "good"),
        ({"epsilon": 0.2}, {}, "less than the recommended ε = 0.5. It keeps the limit", "good"),
        ({"epsilon": 0.8}, {}, "ε = 0.5 is enough", "caution"),
        ({"epsilon": 1.2}, {}, "exceeds the limit on the posterior (75 %)", "bad"),
        ({"largest_loss": 1.1}, {}, "but this release exceeds it for some row", "caution"),
        ({}, {"recommended": None}, "No ε is recommended", "bad"),
        ({"noiseless": True, "epsilon": math.inf}, {}, "this model carries no noise", "bad"),
        # The rows above the limit of the tile are mentioned, those of absence too.
        ({"past_certainty": 10}, {}, "but the attacker's certainty about 10 rows", "caution"),
        ({"past_certainty": 1, "epsilon": 0.2}, {}, "certainty about 1 row exceeds", "caution"),
        ({"seeded": True}, {}, "the recommended one", "caution"),
    ],
)
def test_every_verdict(profile, choice, text, tone):
    verdict = judged(profile, choice).verdict
    assert text in verdict.text
    assert verdict.tone == tone


@pytest.mark.parametrize(
    "profile", [{"unit": "person"}, {"n": 99}, {"loss": "squared"}, {"epsilon": None}]
)
def test_what_cannot_be_compared_is_not(profile):
    result = judged(profile)
    assert result.verdict.text == "the profile"
    assert [alert.title for alert in result.alerts] == [
        "The choice of ε is not compared with this model."
    ]


def test_the_verdict_on_a_useless_model_stays():
    assert judged(priority=90).verdict.text == "the profile"


def test_one_document_is_left_as_it_is():
    page = Page(documents=(document("profile", RELEASED),))
    assert compared(page) is page


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
def test_a_profile_states_the_rows_above_its_limit():
    X, y = data(rows=60)
    model = expost.PrivateLogisticRegression(
        epsilon=8.0, data_norm=6.0, classes=("no", "yes"), random_state=0
    )
    profile = expost.profile(model.fit(X, y), X, y)
    facts = document_of(profile).facts
    assert facts["past_certainty"] == profile.digest.past_posterior > 0


@pytest.mark.filterwarnings("ignore::expost.errors.SeededReleaseWarning")
def test_notices_of_both_are_shown_once():
    notice = "3 rows were clipped. That is intended."
    X, y = data(rows=60)
    model = expost.PrivateLogisticRegression(
        epsilon=1.0, data_norm=6.0, classes=("no", "yes"), random_state=0
    )
    profile = replace(expost.profile(model.fit(X, y), X, y), notices=(notice,))
    choice = replace(chosen("laplace"), notices=(notice,))
    alerts = [
        [(each.title, each.text) for each in document_of(result).alerts]
        for result in (profile, choice)
    ]
    assert all(("3 rows were clipped.", "That is intended.") in each for each in alerts)
