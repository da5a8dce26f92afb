"""Every result as a fragment: its mark, its escaping, ids of its own, no script, no address."""

import re
from html.parser import HTMLParser

import pytest

from expost.errors import InvalidInput
from expost.report.card import MOST_LINES, Card, from_lines
from expost.report.fragments import fragment
from expost.report.html import style_sheet
from expost.report.plots import audience_of
from expost.report.wording import figure
from expost.results import Displayed
from expost.types import Audience

from .conftest import HOSTILE
from .results import RESULTS

# Elements that have no end tag.
VOID = {"rect", "line", "polyline", "polygon", "circle", "br"}
POINTS_AT = ("for", "aria-labelledby", "aria-describedby")


class Parsed(HTMLParser):
    """Tags with their attributes, the text, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


@pytest.mark.parametrize("name", RESULTS)
def test_every_fragment_is_marked_escaped_and_by_itself(name):
    result = RESULTS[name]()
    text = result._repr_html_()
    page = Parsed(text)
    audience = audience_of(result)
    # The mark, first of all.
    assert page.text.split()[0] == audience.value.upper()
    assert audience.meaning in page.text
    # Nothing that runs, loads or leaves; one style sheet.
    names = [tag for tag, _ in page.tags]
    assert not {"script", "img", "link", "iframe", "object", "form", "base", "meta"} & set(names)
    assert names.count("style") == 1
    for _, attrs in page.tags:
        assert not any(one.startswith("on") or one in ("style", "src") for one in attrs)
        assert attrs.get("href", "#").startswith("#")
    assert not re.search(r"https?://|//[a-z]|@import|url\((?!#)", text)
    # What came from outside is text, on one line.
    assert "\u202e" not in text
    assert names.count("section") <= 8
    # One element, with its class.
    assert text.startswith('<div class="expost fragment">\n<style>')
    assert text.rstrip().endswith("</div>")
    # Ids are unique, and all that points at one finds it.
    ids = page.ids()
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"x[0-9a-f]{12}-[\w-]+", one) for one in ids)
    for _, attrs in page.tags:
        for pointer in POINTS_AT:
            assert set((attrs.get(pointer) or "").split()) <= set(ids)
        if "clip-path" in attrs:
            assert attrs["clip-path"].removeprefix("url(#").removesuffix(")") in ids
        if "href" in attrs:
            assert attrs["href"].removeprefix("#") in ids


@pytest.mark.parametrize(
    "name", ["profile", "grouping", "explanation", "ledger", "defence table", "lower bound"]
)
def test_hostile_names_are_text(name):
    text = RESULTS[name]()._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    shown = Parsed(text).text
    assert HOSTILE[:30] in shown


@pytest.mark.parametrize("name", RESULTS)
def test_the_same_result_gives_the_same_bytes(name):
    result = RESULTS[name]()
    assert result._repr_html_() == fragment(result)


def test_fragments_share_no_ids():
    seen = set()
    for name in ("profile", "epsilon choice", "audit", "audit sweep", "row identifiability"):
        ids = set(Parsed(RESULTS[name]()._repr_html_()).ids())
        assert ids
        assert not ids & seen
        seen |= ids


def test_figures_of_cards_are_those_of_the_results():
    cost = RESULTS["selection cost"]()
    shown = Parsed(cost._repr_html_()).text
    for chance in cost.probabilities:
        assert f"{100 * chance:.1f}\u00a0%" in shown
    table = RESULTS["defence table"]()
    shown = Parsed(table._repr_html_()).text
    for row in table.rows:
        assert str(row.attack) in shown
        assert row.limit_in_words in shown
    release = RESULTS["release"]()
    shown = Parsed(release._repr_html_()).text.split()
    for value in release.coefficients[0]:
        assert figure(float(value)) in shown


def test_long_tables_are_cut_and_say_so():
    lines = tuple((str(place), "1") for place in range(MOST_LINES + 3))
    card = Card(title="t", lines=lines).shown(Audience.PASS)
    assert len(card.lines) == MOST_LINES
    assert card.notices == ("3 more lines are not shown.",)
    assert card.audience is Audience.PASS
    assert Card(title="t").shown(Audience.FAIL).notices == ()


def test_readable_lines_become_a_table():
    card = from_lines(["A title", "name   what it is", "", "A sentence of its own."])
    assert card.title == "A title"
    assert card.lines == (("name", "what it is"),)
    assert card.sentences == ("A sentence of its own.",)


def test_figures_are_set_to_the_right():
    card = Card(title="t", lines=(("a", "1.5", "x 1", "∞"), ("b", "−2 × 10⁻⁷", "–", "< 0.1 %")))
    assert card.numeric == (False, True, False, True)


def test_what_is_no_result_is_refused():
    class Nothing(Displayed):
        pass

    with pytest.raises(InvalidInput, match="Nothing has no fragment"):
        Nothing()._repr_html_()
    with pytest.raises(InvalidInput, match="Nothing has no figure"):
        Nothing().plot()


def test_the_style_sheet_styles_nothing_but_reports():
    """Every rule hangs under the class; the page's own colours are for its own root alone."""
    rules, depth, start = [], 0, 0
    style = re.sub(r"/\*.*?\*/", "", style_sheet(), flags=re.DOTALL)
    for place, character in enumerate(style):
        if character == "{":
            if depth == 0:
                rules.append(style[start:place].strip())
            depth += 1
        elif character == "}":
            depth -= 1
            start = place + 1
            assert depth >= 0
    assert depth == 0
    assert rules[0] == ".expost, #expost"
    root = ":root:has(> body.expost)"
    assert set(rules[1:]) <= {root, "@media print"}
    print_rules = style.rpartition("@media print {")[2]
    assert print_rules.strip().startswith(root)
    for text in (fragment(RESULTS["coverage"]()),):
        assert 'id="expost"' not in text
