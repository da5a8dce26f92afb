"""What a browser makes of a page, and what every page must keep to."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

_TAGS = (
    "html head meta title style body header main footer section h1 h2 h3 p div span ul ol li dl dt"
    " dd table caption thead tbody tr th td figure figcaption pre code strong sup a"
    # drawings
    " svg desc clippath rect line polyline polygon circle text g"
    # what the script brings to life; it lies in the page, by its hash
    " script noscript label input output button select option datalist details summary"
)
TAGS = set(_TAGS.split())
VOID = {"meta", "input"}
# Attributes by which a page fetches, sends or runs something.
LOUD = {"src", "srcset", "action", "formaction", "style", "data", "xlink:href", "ping", "nonce"}
# The only kinds of input: none sends anything without a form, and there is none.
INPUTS = {"range", "number", "search", "file", "text", "checkbox", "radio"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order.

    ``blocks``    the text of every paragraph, list item, heading and cell.
    ``pictures``  how many drawings are not hidden from those who do not see.
    """

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.source = source
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.style, self.scripts, self.data = "", [], []
        self.blocks, self.pictures = [], 0
        self._starts, self._hidden, self._running = [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag == "script":
            assert given in ({}, {"type": "application/json", "id": "expost-data"})
            # A block of data is not run, and so no policy speaks of it.
            self._running = self.data if given else self.scripts
            self._running.append("")
        if tag not in VOID:
            self.open.append(tag)
            self._starts.append(len(self.texts))
            self._hidden.append(given.get("aria-hidden") == "true")
        self.pictures += tag == "svg" and not any(self._hidden)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self._hidden.pop()
        start = self._starts.pop()
        if tag in {"p", "li", "h1", "h2", "h3", "th", "td", "dd"}:
            self.blocks.append(" ".join("".join(self.texts[start:]).split()))

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        elif self.open and self.open[-1] == "script":
            self._running[-1] += data
        else:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def sections(self):
        """The ids of the headings that name the sections, in the order of the page."""
        return [
            value
            for tag, name, value in self.attributes
            if (tag, name) == ("section", "aria-labelledby")
        ]

    def values(self, name):
        """Of one attribute."""
        return [value for _, attribute, value in self.attributes if attribute == name]

    @property
    def rules(self):
        """The content policy."""
        (policy,) = [value for value in self.values("content") if "default-src" in value]
        return dict(rule.strip().split(" ", 1) for rule in policy.split(";"))


def ends(one, *, to=" ", end="", digits=3):
    """A figure and its interval as a page writes them, the ends rounded outwards."""
    scale = 10**digits
    low, high = math.floor(one.low * scale) / scale, math.ceil(one.high * scale) / scale
    shown = f"{one.value:.{digits}f}{to}{low:.{digits}f} to {high:.{digits}f}{end}"
    return shown.replace("-", "−")


def digest(text):
    """What a content policy calls a style or a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def check_whole(page):
    """Known tags, headings in order, and everything that is referred to exists once."""
    assert set(page.tags) <= TAGS, set(page.tags) - TAGS
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert ("html", "lang", "en") in page.attributes
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    named = {
        word for name in ("aria-labelledby", "for") for v in page.values(name) for word in v.split()
    }
    assert named <= set(ids)
    assert {value.removeprefix("#") for value in page.values("href")} <= set(ids)
    assert len(page.sections) == page.tags.count("section") == len(set(page.sections))
    # A drawing says what is to be seen on it, or is passed over by those who do not see.
    assert page.pictures == page.tags.count("desc")
    # What scrolls can be reached by the keyboard.
    assert page.tags.count("pre") == page.attributes.count(("pre", "tabindex", "0"))


def check_quiet(page):
    """Nothing comes from outside, nothing leaves, and nothing runs but the script of the page."""
    names = {name for _, name, _ in page.attributes}
    assert not names & LOUD
    assert not any(name.startswith("on") for name in names)
    assert all(value.startswith("#") for value in page.values("href"))
    assert {
        value for tag, name, value in page.attributes if (tag, name) == ("input", "type")
    } <= INPUTS
    assert "form" not in page.tags
    assert all(
        value == "button"
        for tag, name, value in page.attributes
        if (tag, name) == ("button", "type")
    )
    assert page.tags.count("button") == page.attributes.count(("button", "type", "button"))
    assert page.tags.count("style") == 1
    assert "url(" not in page.style
    assert "@import" not in page.style
    rules = page.rules
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == digest(page.style)
    assert (rules["base-uri"], rules["form-action"]) == ("'none'", "'none'")
    # One script at the most, which may do what its hash says, and no more.
    assert len(page.scripts) <= 1
    assert len(page.data) == len(page.scripts)
    expected = {"default-src", "style-src", "base-uri", "form-action"}
    assert set(rules) == expected | ({"script-src"} if page.scripts else set())
    for script in page.scripts:
        assert rules["script-src"] == digest(script)
        assert not re.search(r"\beval\b|\bFunction\(|innerHTML|outerHTML|document\.write", script)
        assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", script)
    for data in page.data:
        # It can end neither its block nor a line of script.
        assert not re.search("[<>&\u2028\u2029]", data)
        json.loads(data, parse_constant=lambda name: 1 / 0)
    # Every class has a style; the page's own is the name under which a notebook scopes it, and
    # the strictest audience looks as audiences do.
    styled = {"expost", "mark-curator-only", *re.findall(r"\.([a-z][\w-]*)", page.style)}
    drawn = {word for words in page.values("class") for word in words.split()}
    assert drawn <= styled, drawn - styled


def check(page):
    """All that every page must keep to."""
    check_whole(page)
    check_quiet(page)
