"""One summary of many parts: what it says of all of them, to whom, and in which order."""

import dataclasses
import json
import math
import re
import warnings
from functools import cache

import pytest

import expost
from expost.epsilon.limit import PosteriorLimit
from expost.errors import InvalidInput, SeededReleaseWarning
from expost.report import (
    Choice,
    Origin,
    Summary,
    collect,
    collect_audit,
    collect_epsilon,
    collect_profile,
    render_html,
    render_markdown,
    wording,
)
from expost.report.comparison import compared, why_not_compared
from expost.report.markup import escaped
from expost.types import Audience
from settings import OUTPUT

from .audits import audited
from .conftest import fitted, noiseless, synthetic
from .epsilon_choices import chosen, data
from .pages import Page, check
from .summaries import MAKERS, summary

RECOMMENDED = "ε = 14.7"


@cache
def released(epsilon=2.0, *, seeded=False):
    """A model of the rows and settings that ``chosen()`` is of, and its profile."""
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeededReleaseWarning)
        model = expost.PrivateLogisticRegression(
            epsilon=epsilon,
            **(OUTPUT | {"regularization": 0.05}),
            data_norm=6.0,
            classes=["no", "yes"],
            random_state=3,
        ).fit(X, y)
    # That the model is no better than the base rate is said first; tests/test_useless.py has that.
    profile = dataclasses.replace(expost.profile(model, X, y), fit=None)
    return dataclasses.replace(model.release_, seeded=seeded), profile


@cache
def profiled(epsilon=2.0, *, seeded=False):
    release, profile = released(epsilon, seeded=seeded)
    return collect_profile(profile, release=release)


@cache
def choice(kind="laplace"):
    part = collect_epsilon(chosen(kind))
    # As where less than the limit allows is enough.
    return dataclasses.replace(part, ceiling=16.0) if kind == "laplace" else part


@cache
def audit(kind):
    return collect_audit(audited(kind))


@cache
def risk():
    return collect(expost.identifiability(epsilon=2.0, delta=1e-5)).risk


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def page_of(**parts):
    return Summary.of(parts, {"expost": "1"})


def at(epsilon, **changes):
    """The profile as it would be of a model released at ``epsilon`` in place of 2."""
    part = profiled()
    told = part.model.replace("epsilon=2 ", f"epsilon={epsilon:g} ")
    return dataclasses.replace(part, epsilon=epsilon, model=told, **changes)


# A summary of parts ------------------------------------------------------------------------------


def test_parts_come_in_the_order_of_the_page_whatever_they_are_given_in():
    parts = {"audit": audit("promised"), "risk": risk(), "profile": profiled(), "epsilon": choice()}
    whole = page_of(**parts)
    assert [*whole.by_name] == ["profile", "epsilon", "risk", "audit"]
    assert whole.parts == tuple(parts[name] for name in whole.by_name)
    assert whole.title == profiled().title
    assert page_of(epsilon=choice(), audit=audit("promised")).title == choice().title
    assert whole == page_of(**dict(reversed(parts.items())))
    assert dict(Summary.of(parts).versions).keys() >= {"expost", "numpy", "python"}


def test_a_summary_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match="has no part"):
        Summary(versions=())
    with pytest.raises(InvalidInput, match="at least one result"):
        collect()


def test_results_are_told_apart_by_their_type():
    release, profile = released()
    found = collect(profile, chosen(), audited(), release=release, source="t.csv", notices=["n"])
    assert (found.profile.epsilon, found.epsilon.rows, found.audit.members) == (2.0, 90, 120)
    # What is said of the run is said once, of the first.
    assert (found.profile.source, found.epsilon.source) == ("t.csv", None)
    assert found.notices.count("n") == 1
    with pytest.raises(InvalidInput, match="cannot report a str"):
        collect(profile, "an answer")
    with pytest.raises(InvalidInput, match="two of them are of the kind 'profile'"):
        collect(profile, profile)


def test_what_parts_share_is_told_once():
    shared = Choice(name="seed", value="3", origin=Origin.GIVEN)
    own = Choice(name="seed", value="4", origin=Origin.GIVEN)
    given = {"source": "t.csv", "made": "2026-11-16", "model": "the same model"}
    first = dataclasses.replace(profiled(), choices=(shared,), notices=("both",), **given)
    second = dataclasses.replace(
        audit("promised"), choices=(own, shared), notices=("own", "both"), **given
    )
    whole = page_of(profile=first, audit=second)
    assert whole.choices == (shared, own)
    assert whole.notices == ("both", "own")
    assert whole.models == ("the same model",)
    assert whole.sources == ("t.csv, 2026-11-16",)
    page = Page(render_html(whole))
    assert [page.blocks.count(text) for text in ("both", "own", "the same model")] == [1, 1, 1]
    assert page.text.count("t.csv, 2026-11-16") == 1
    assert page.text.count("Choices made") == page.text.count("What to know") == 1


# Who may read it ---------------------------------------------------------------------------------


def marked(part, mark):
    """A part that says of itself who may read it; only some kinds may say anything but fail."""
    other = object.__new__(type(part))
    other.__dict__.update(part.__dict__, audience=mark)
    return other


def test_the_mark_is_that_of_the_strictest_part():
    free, private = risk(), profiled()
    assert (free.audience, private.audience) == (Audience.PASS, Audience.FAIL)
    assert page_of(risk=free).audience is Audience.PASS
    assert page_of(risk=free, profile=private).audience is Audience.FAIL
    reviewed = marked(audit("promised"), Audience.REVIEW)
    assert page_of(risk=free, audit=reviewed).audience is Audience.REVIEW
    assert page_of(risk=free, audit=reviewed, profile=private).audience is Audience.FAIL


def test_nothing_but_what_is_marked_pass_is_public():
    told = dataclasses.replace(
        profiled(),
        choices=(Choice(name="secret", value="3", origin=Origin.READ),),
        notices=("a secret notice",),
        source="secret.csv",
    )
    whole = page_of(profile=told, epsilon=choice(), risk=risk(), audit=audit("refuted"))
    public = whole.public()
    assert public == page_of(risk=risk())
    for text in (render_html(public), render_markdown(public)):
        assert "PASS" in text
        assert "secret" not in text
        assert profiled().top[0].key not in text.split()
        for part in (told, choice(), audit("refuted")):
            for sentence in (*sentences(part), *part.notices, part.model):
                assert sentence not in text
    reviewed = marked(audit("promised"), Audience.REVIEW)
    assert page_of(risk=risk(), audit=reviewed).public() == public
    assert public.public() == public


def test_a_page_with_nothing_public_is_refused():
    whole = page_of(profile=profiled(), audit=marked(audit("promised"), Audience.REVIEW))
    with pytest.raises(InvalidInput) as caught:
        whole.public()
    assert "nothing here is marked pass (profile: fail, audit: review)" in str(caught.value)
    assert "expost publish" in str(caught.value)


def test_two_summaries_become_one():
    first = Summary.of({"profile": profiled()}, {"expost": "1", "numpy": "2"})
    second = Summary.of({"epsilon": choice(), "risk": risk()}, {"expost": "1", "numpy": "3"})
    whole = first.merged(second)
    assert [*whole.by_name] == ["profile", "epsilon", "risk"]
    assert [*second.merged(first).by_name] == [*whole.by_name]
    # Neither version is hidden by the other.
    assert whole.versions == (("expost", "1"), ("numpy", "2"), ("numpy", "3"))
    assert whole.answer == page_of(profile=profiled(), epsilon=choice(), risk=risk()).answer
    with pytest.raises(InvalidInput, match="two parts of the kind 'profile'"):
        whole.merged(first)


# The answer --------------------------------------------------------------------------------------


def sentences(part):
    """All that a part has to say."""
    said = part.headline
    return [text for text in (said.epsilon, said.exposed, said.advice) if text] + [*part.answer]


@pytest.mark.parametrize(
    ("parts", "which", "exposed", "advice"),
    [
        ({"profile": profiled}, "promises ε = 2", "most exposed row by", "No row is exposed past"),
        (
            {"epsilon": choice},
            f"{RECOMMENDED} is the most that the limit allows",
            f"At {RECOMMENDED} the posterior",
            "If that posterior is acceptable",
        ),
        ({"risk": risk}, "Promised to any row of any", "is at most 89.2", "expost risk --belief"),
        (
            {"audit": lambda: audit("nothing")},
            "No promise of privacy",
            "learns nothing",
            "Nothing here speaks against",
        ),
        (
            {"profile": profiled, "audit": lambda: audit("promised")},
            "promises ε = 2",
            "most exposed row by",
            "No row is exposed past",
        ),
        (
            {"epsilon": choice, "audit": lambda: audit("promised")},
            f"{RECOMMENDED} is the most that the limit allows",
            f"At {RECOMMENDED} the posterior",
            "If that posterior is acceptable",
        ),
        (
            {"profile": profiled, "epsilon": choice},
            f"released at ε = 2, less than the {RECOMMENDED} that is recommended",
            "most exposed row by",
            "with room to spare",
        ),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_three_sentences_say_which_epsilon_how_exposed_and_what_to_do(
    parts, which, exposed, advice
):
    whole = page_of(**{name: make() for name, make in parts.items()})
    assert len(whole.answer) == 3
    for sentence, words in zip(whole.answer, (which, exposed, advice), strict=True):
        assert words in sentence.replace("\xa0", " ")
        assert sentence.endswith(".")


@pytest.mark.parametrize("kind", ["refuted", "memorised"])
def test_an_alarm_speaks_for_the_page_and_nothing_beside_it_says_how_to_release(kind):
    whole = page_of(profile=profiled(), epsilon=choice(), risk=risk(), audit=audit(kind))
    alarm = audit(kind).headline
    assert alarm.alarm
    assert whole.answer == (alarm.epsilon, alarm.exposed, alarm.advice)
    page = Page(render_html(whole))
    for quiet in (profiled(), choice(), risk()):
        assert quiet.headline.advice not in page.text
        assert quiet.headline.exposed in whole.lead(quiet)
    assert f"{RECOMMENDED} is the most" not in page.text
    # Without it each says what to do.
    calm = page_of(profile=profiled(), risk=risk(), audit=audit("promised"))
    assert calm.answer[2] == profiled().headline.advice
    assert risk().headline.advice in calm.lead(risk())


def test_a_broken_promise_is_an_alarm():
    kept = synthetic(200)
    losses = dataclasses.replace(kept.losses, worst_case=1e-4)
    broken = collect_profile(dataclasses.replace(kept, losses=losses))
    assert broken.headline.alarm
    whole = page_of(profile=broken, epsilon=choice(), audit=audit("promised"))
    assert whole.answer[0].startswith("The promise is broken")
    assert whole.answer[2].startswith("Do not release this model")
    # Of two alarms the first speaks, and the other says its own in its place.
    both = page_of(profile=broken, audit=audit("refuted"))
    assert both.answer == whole.answer
    assert both.lead(audit("refuted"))[:3] == (
        audit("refuted").headline.epsilon,
        audit("refuted").headline.exposed,
        audit("refuted").headline.advice,
    )


def exposing(*losses, seeded=None):
    """The profile of rows that lose so much."""
    part = synthetic(len(losses), epsilon=50.0)
    figures = dataclasses.replace(
        part.losses, loss=part.loss * 0 + losses, low=part.loss + losses, high=part.loss + losses
    )
    release = None if seeded is None else released(seeded=seeded)[0]
    return collect(dataclasses.replace(part, losses=figures), release=release)


def test_rows_past_three_quarters_are_counted_and_a_seed_is_a_rehearsal():
    past = math.log(3)  # odds of 3 to 1
    advice = exposing(0.9 * past, 1.1 * past, -1.2 * past).answer[2]
    assert advice.startswith("2 rows are exposed past 75\xa0%: let expost epsilon find an ε")
    assert exposing(0.9 * past, 1.1 * past).answer[2].startswith("1 row is exposed past")
    calm = exposing(0.9 * past, -0.99 * past).answer[2]
    assert calm.startswith("No row is exposed past 75\xa0%")
    assert "keep this page to yourself" in calm
    seeded = exposing(2.0, 0.1, seeded=True).answer[2]
    assert seeded.startswith("Its noise came from a seed, so this is a rehearsal; and 1 row is")
    assert seeded.endswith("release at that one without a seed.")
    assert exposing(0.1, seeded=True).answer[2].endswith("before anything leaves the building.")
    assert "seed" not in exposing(0.1, seeded=False).answer[2]


def test_what_is_not_certain_is_not_called_so():
    """Past 37 nats the nearest float to a belief is 1, and past 745 to a doubt 0."""
    whole = exposing(45.0, 0.1, -800.0)
    assert "<\xa0100\xa0% sure whether it was in the data" in whole.answer[1]
    assert [row.belief for row in whole.profile.top] == [5e-324, math.nextafter(1, 0), sigmoid(0.1)]
    alone = page_of(profile=whole.profile)
    page, text = Page(render_html(alone)), render_markdown(alone)
    for shown in (page.blocks, re.findall(r"[^|]+", text)):
        assert not {"100 %", "0 %", "0.0 %", "100.0 %"} & {cell.strip() for cell in shown}
        assert "< 0.1 %" in {" ".join(cell.split()) for cell in shown}
    assert not re.search("(?<!< )100 % sure", text.replace("\xa0", " "))
    # What is infinite is certain.
    assert wording.certainty(math.inf) == 1
    assert wording.certainty(-math.inf) == 0


def test_without_noise_nothing_is_promised_and_all_can_be_certain():
    whole = collect(noiseless(50))
    which, exposed, advice = whole.answer
    assert which == "This model carries no noise, so no ε is promised."
    assert "can be certain whether a row was in the data, for 49 of its 50 rows" in exposed
    assert advice.startswith("Do not share it with anybody who may not see its rows")


# A model beside the ε that is recommended --------------------------------------------------------


def test_the_choice_is_of_the_same_rows_and_says_what_the_tests_take_it_to_say():
    assert choice().recommended == 14.7
    assert 14.7 < chosen().ceiling < 14.71
    assert why_not_compared(profiled(), choice()) is None
    assert profiled().top[0].exposure < math.log(3)


@pytest.mark.parametrize(
    ("epsilon", "which", "advice"),
    [
        (2.0, f"less than the {RECOMMENDED} that is", "It keeps the limit on the posterior (75 %)"),
        (14.6, f"less than the {RECOMMENDED} that is", "with room to spare"),
        (14.7, "released at ε = 14.7, the recommended one", "share it if that is sure enough"),
        (15.0, f"and no more than {RECOMMENDED} is", "but less is enough: release another at"),
        (80.0, f"and no more than {RECOMMENDED} is", "is not kept: release another model at"),
    ],
)
def test_the_models_epsilon_stands_beside_the_recommended_one(epsilon, which, advice):
    said = compared(at(epsilon), choice())
    assert which in said.epsilon.replace("\xa0", " ")
    assert f"released at ε = {epsilon:g}" in said.epsilon
    assert advice in said.advice.replace("\xa0", " ")
    # How exposed the rows are is known of this model, and that is what is told.
    assert said.exposed is None
    whole = page_of(profile=at(epsilon), epsilon=choice())
    assert whole.answer == (said.epsilon, at(epsilon).headline.exposed, said.advice)
    assert ("do not share this one" in said.advice) == (epsilon > choice().ceiling)


def test_what_to_type_next_is_one_more_release_where_there_was_one():
    advised = dataclasses.replace(choice(), command="expost profile t.csv")
    alone = render_html(page_of(epsilon=advised))
    assert "Nothing has been released yet." in alone
    beside = render_html(page_of(profile=at(2.0), epsilon=advised))
    assert "It is one more release" in beside
    assert "Nothing has been released yet." not in beside


def test_a_seeded_model_is_a_rehearsal_at_whatever_epsilon():
    for epsilon in (2.0, 14.7, 80.0):
        advice = compared(at(epsilon, seeded=True), choice()).advice
        assert "so this is a rehearsal: release a model without one, at ε = 14.7 or less" in advice
    assert "rehearsal" in page_of(profile=profiled(seeded=True), epsilon=choice()).answer[2]


def test_a_model_that_is_for_a_review_is_reviewed_before_it_is_shared():
    review = {"model_audience": Audience.REVIEW}
    for epsilon in (2.0, 14.7):
        advice = compared(at(epsilon, **review), choice()).advice
        assert "holds what was read from its rows, which its ε does not cover" in advice
        assert "share it if" not in advice
        advice = compared(at(epsilon, worst_case=math.inf, **review), choice()).advice
        assert "nothing is promised for other data: have the model reviewed before" in advice
    # What must not be shared at all is told so.
    assert "do not share this one" in compared(at(80.0, **review), choice()).advice
    release, profile = released()
    assert "share the model if its promise is" in collect(profile, release=release).answer[2]
    read = dataclasses.replace(release, read_from_data=("classes (the label set)",))
    advice = collect(profile, release=read).answer[2]
    assert "have that reviewed before you share it, or give it beforehand and release" in advice
    # expost publish refuses such a model.
    assert "share the model if" not in advice
    assert "expost publish" not in advice


def test_an_unlucky_draw_is_told_and_not_drawn_again():
    worse = dataclasses.replace(profiled().top[0], loss=2.0, low=2.0, high=2.0)
    for epsilon in (2.0, 14.7, 15.0):
        advice = compared(at(epsilon, top=(worse,)), choice()).advice
        assert "but this model passes it for some row" in advice
        assert "Do not draw again until one pleases" in advice
        assert "--quantile above 0.95" in advice
    assert "passes it" not in compared(at(80.0, top=(worse,)), choice()).advice
    # Evidence that a row was not in the data is no belief that it was.
    against = dataclasses.replace(worse, loss=-2.0, low=-2.0, high=-2.0)
    calm = dataclasses.replace(worse, loss=1.0, low=1.0, high=1.0)
    assert "passes it" not in compared(at(2.0, top=(against, calm)), choice()).advice
    # Where no listed row speaks for "in", those that are not listed may lose as much.
    assert "passes it" in compared(at(2.0, top=(against,)), choice()).advice
    # A bound that was set from another prior, for nine releases in ten: e² to 9 is 45.08 %.
    for largest, passed in ((0.45, True), (0.452, False)):
        limit = PosteriorLimit(max_posterior=largest, prior=0.1, quantile=0.9)
        other = dataclasses.replace(choice(), limit=limit)
        advice = compared(at(2.0, top=(worse,)), other).advice
        assert ("with probability 0.9, but this model" in advice) == passed
        assert ("a --quantile above 0.9" in advice) == passed


def test_no_noise_and_no_recommendation():
    release, profile = released(math.inf)
    silent = collect_profile(profile, release=release)
    said = compared(silent, choice())
    assert said.epsilon == f"Use {RECOMMENDED}: this model carries no noise."
    assert "Do not share this model" in said.advice
    assert f"release another at {RECOMMENDED}" in said.advice
    for part, words in ((profiled(), "was released at ε = 2"), (silent, "carries no noise")):
        none = compared(part, choice("none"))
        assert none.epsilon == f"No ε is recommended, and this model {words}."
        assert "it misses a bound that was set" in none.advice


def follows(**parts):
    """What follows the slider of the page: the profile's figures, the charts of the choice."""
    (data,) = Page(render_html(page_of(**parts))).data
    found = json.loads(data)
    assert found["slider"] is not None
    return found["followsSlider"], found["choiceFollows"]


def test_the_slider_moves_nothing_that_is_of_other_models():
    same, other = profiled(), profiled()
    other = dataclasses.replace(other, model=other.model.replace("0.05", "0.5"))
    assert why_not_compared(same, choice()) is None
    assert why_not_compared(other, choice()) is not None
    assert follows(profile=same, epsilon=choice()) == (True, True)
    assert follows(profile=other, epsilon=choice()) == (True, False)
    assert follows(profile=same) == (True, False)
    assert follows(epsilon=choice()) == (False, True)
    # A profile without a slider leaves the page's to the choice, whatever the models are.
    for still in (same, other):
        part = dataclasses.replace(still, slider=None)
        assert follows(profile=part, epsilon=choice()) == (False, True)


def test_no_line_ends_inside_of_an_option():
    worse = dataclasses.replace(profiled().top[0], loss=20.0)
    whole = page_of(profile=at(2.0, top=(worse,)), epsilon=choice())
    assert "with a --quantile above 0.95 and" in whole.answer[2]
    source = render_html(whole)
    assert 'with a <span class="whole">--quantile</span> above 0.95 and release' in source
    assert re.search(r"\.whole \{[^}]*white-space: nowrap", source)
    assert " ".join(whole.answer[2].split()) in Page(source).blocks
    check(Page(source))


def test_what_is_of_something_else_is_not_compared():
    release, _, _, profile = fitted()
    others = {
        "other rows and regularization": collect_profile(profile, release=release),
        "no known epsilon": dataclasses.replace(profiled(), epsilon=None),
        "another noise": dataclasses.replace(
            profiled(), model=profiled().model.replace("laplace", "gaussian")
        ),
        "nothing that is known": collect_profile(synthetic(90)),
    }
    for name, part in others.items():
        assert compared(part, choice()) is None, name
        whole = page_of(profile=part, epsilon=choice())
        # The model, which is there, speaks; the choice says its own in its place.
        said = part.headline
        sentences = (said.useless, said.epsilon, said.exposed, said.advice)
        assert whole.answer == tuple(filter(None, sentences)), name
        assert choice().headline.epsilon in whole.lead(choice())
        assert whole.notices[0].startswith("The choice of ε is of another mechanism")
    persons = expost.profile(release, *fitted()[1:3], persons=[i // 3 for i in range(150)])
    part = collect_profile(persons, release=release)
    assert compared(part, choice()) is None
    assert "a person of several rows less" in page_of(profile=part, epsilon=choice()).notices[0]
    assert page_of(profile=profiled(), epsilon=choice()).notices == (
        *profiled().notices,
        *choice().notices,
    )


# Where it stands ---------------------------------------------------------------------------------


def combinations():
    yield from ((kind, lambda kind=kind: summary(kind)) for kind in MAKERS)
    pair = {"profile": profiled, "epsilon": choice}
    yield "compared", lambda: page_of(**{name: make() for name, make in pair.items()})
    for kind in ("promised", "refuted"):
        yield (
            f"compared-{kind}",
            lambda kind=kind: page_of(
                profile=profiled(), epsilon=choice(), risk=risk(), audit=audit(kind)
            ),
        )


COMBINATIONS = dict(combinations())


def replaced(whole):
    """What the page says in other words, as the documentation of a summary has it."""
    alarm = any(part.headline.alarm for part in whole.parts)
    if alarm:
        use = [whole.epsilon.headline.epsilon] if whole.epsilon else []
        return use + [p.headline.advice for p in whole.parts if not p.headline.alarm]
    if whole.profile and whole.epsilon and compared(whole.profile, whole.epsilon):
        said = whole.epsilon.headline
        return [said.epsilon, said.advice, whole.profile.headline.advice]
    return []


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_sentence_stands_on_the_page_exactly_once(name):
    whole = COMBINATIONS[name]()
    page, text = Page(render_html(whole)), render_markdown(whole).splitlines()
    gone = {" ".join(sentence.split()) for sentence in replaced(whole) if sentence}
    for sentence in dict.fromkeys((*whole.answer, *(s for p in whole.parts for s in sentences(p)))):
        shown = " ".join(sentence.split())
        expected = 0 if shown in gone else 1
        assert page.blocks.count(shown) == expected, shown
        assert text.count(escaped(sentence)) == expected, shown


# The order; what belongs to one of its places stands there in any order of its own.
ORDER = (
    ("answer",),
    ("slider",),
    ("profile", "top"),
    ("transition", "next", "table", "critical", "cost"),
    ("groups",),
    ("search",),
    ("beliefs",),
    ("risk", "published", "training"),
    ("roc", "attacks", "rows", "audit-groups", "exposures", "bounds", "questions", "audits"),
    ("ledger",),
    ("accuracy", "model"),
    ("guarantee",),
    ("forecast",),
    ("choices",),
    ("notices",),
    ("reading",),
)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_sections_stand_in_the_order_that_was_asked_for(name):
    page = Page(render_html(COMBINATIONS[name]()))
    check(page)
    place = {key: number for number, keys in enumerate(ORDER) for key in keys}
    places = [place[key] for key in page.sections]
    assert places == sorted(places)
    assert page.sections[0] == "answer"
    # Versions close the page.
    assert page.tags[page.tags.index("footer") :].count("section") == 0


def test_a_page_of_everything_has_every_section():
    release, profile = released()
    whole = collect(
        profile,
        chosen(),
        audited("promised"),
        expost.identifiability(epsilon=2.0),
        release=release,
        groups=[profile.by(data()[1], name="answer")],
        command="expost profile t.csv",
        choices=[Choice(name="seed", value="3", origin=Origin.GIVEN)],
        notices=["mind this"],
    )
    found = Page(render_html(whole)).sections
    assert {key for keys in ORDER for key in keys} - set(found) <= {
        *("published", "training", "audits", "ledger", "accuracy")
    }
    assert len(whole.answer) == 3
