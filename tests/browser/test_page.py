"""Every page in a real browser: quiet, whole without scripts, and on narrow screens."""

import pytest

from .pages import KINDS
from .watching import DESKTOP, NARROW, PHONE

# Elements that load something or send it, and the widths of the page and of its window.
LOADING = "img, iframe, object, embed, link, audio, video, base, form"
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"

# Boxes of text have room above and below the letters: a third of it may lie in another's.
LABELS = """() => [...document.querySelectorAll('figure svg[role=img]')].flatMap(svg => {
    const frame = svg.closest('figure').getBoundingClientRect();
    const labels = [...svg.querySelectorAll('text')].filter(one => one.textContent.trim()
            && getComputedStyle(one).display !== 'none')
        .map(one => ({text: one.textContent.trim(), box: one.getBoundingClientRect()}));
    const cut = labels.filter(({box}) => box.left < frame.left || box.right > frame.right
        || box.top < frame.top || box.bottom > frame.bottom).map(one => ['cut', one.text]);
    const met = labels.flatMap((one, place) => labels.slice(place + 1).filter(other => {
        const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
        const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
        return wide > 1 && high > Math.min(one.box.height, other.box.height) / 3;
    }).map(other => [one.text, other.text]));
    return [...cut, ...met];
})"""

kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
def test_nothing_stands_in_the_page_that_could_run_or_be_fetched(open_page, made, kind):
    # As it was written: scripts of its own may set styles later.
    page = open_page(made(kind), scripts=False)
    text = made(kind).read_text()
    assert page.locator(LOADING).count() == 0
    attributes = page.locator("*").evaluate_all(
        "all => all.flatMap(one => one.getAttributeNames().map(name => [name, one.getAttribute(name)]))"
    )
    assert attributes
    names = {name for name, _ in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src")}
    links = {value for name, value in attributes if name in ("href", "xlink:href")}
    assert all(link.startswith(("#", "https://")) for link in links)
    assert "default-src 'none'" in text
    assert "unsafe" not in text.partition("</head>")[0].partition("<style>")[0]


@kinds
def test_without_scripts_all_sections_can_be_read(open_page, made, kind):
    shown = open_page(made(kind), scripts=False).locator("h2:visible").all_inner_texts()
    assert len(shown) >= 1
    scripted = open_page(made(kind)).locator("h2:visible").all_inner_texts()
    assert [heading for heading in shown if heading not in scripted] == []


@kinds
def test_a_narrow_screen_scrolls_one_way(open_page, made, kind):
    page = open_page(made(kind), size=PHONE)
    for width, height in (PHONE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(WIDTHS) == [width] * 2
        # Nothing is cut off at the side for good: what is wide has a box that scrolls.
        cut = page.evaluate(
            """[...document.querySelectorAll('body *')].filter(one =>
                one instanceof HTMLElement && one.clientWidth > 1 &&
                one.scrollWidth > one.clientWidth + 1 &&
                ['hidden', 'clip'].includes(getComputedStyle(one).overflowX)
            ).map(one => one.outerHTML.slice(0, 200))"""
        )
        assert cut == []


@kinds
def test_who_wants_no_motion_sees_none(open_page, made, kind):
    page = open_page(made(kind), motion="reduce")
    moving = page.evaluate(
        """[...document.querySelectorAll('*')].filter(one => {
            const style = getComputedStyle(one);
            return [style.transitionDuration, style.animationDuration].some(
                times => times.split(', ').some(time => parseFloat(time) > 0.001));
        }).map(one => one.outerHTML.slice(0, 200))"""
    )
    assert moving == []
    assert page.evaluate("document.getAnimations().length") == 0


def test_what_is_smuggled_in_does_not_run_and_is_noticed(open_page, made):
    # The other tests would be worth nothing if this were not seen.
    page = open_page(made("profile"))
    watched = open_page.let_off()
    fetched = page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.smuggled = 1';
            const image = document.createElement('img');
            image.src = 'https://example.invalid/x.png';
            const paragraph = document.createElement('p');
            paragraph.setAttribute('onclick', 'window.smuggled = 2');
            document.body.append(script, image, paragraph);
            paragraph.click();
            setTimeout(() => alert('hello'));
            return fetch('https://example.invalid/y').then(() => 'came', () => 'was refused');
        }"""
    )
    assert fetched == "was refused"
    assert page.evaluate("window.smuggled ?? null") is None
    page.wait_for_timeout(50)
    watched.context.close()
    # Script, image, handler and fetch.
    assert len([line for line in watched.console if "Content Security Policy" in line]) >= 4
    assert watched.dialogs == ["hello"]
    with pytest.raises(AssertionError):
        watched.is_quiet()


def test_a_request_that_leaves_is_noticed(open_page, tmp_path):
    path = tmp_path / "loud.html"
    path.write_text('<!doctype html><title>loud</title><img src="https://example.invalid/x.png">')
    open_page(path)
    watched = open_page.let_off()
    watched.context.close()
    assert watched.requests == [path.as_uri(), "https://example.invalid/x.png"]
    with pytest.raises(AssertionError):
        watched.is_quiet()


@kinds
def test_what_is_written_in_drawings_can_be_read(open_page, made, kind):
    """No label lies upon another, and none is cut off by its frame."""
    page = open_page(made(kind))
    for width, height in (DESKTOP, PHONE):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(LABELS) == []


def test_the_frontier_is_side_by_side_where_there_is_room(open_page, made):
    figure = "figure[data-figure=frontier]"
    for size, beside in ((DESKTOP, True), (PHONE, False)):
        page = open_page(made("epsilon"), size=size)
        first, second = (panel.bounding_box() for panel in page.locator(f"{figure} .panel").all())
        assert (first["y"] == second["y"]) is beside
        assert (first["x"] == second["x"]) is not beside
        # The recommended point, in each panel.
        assert page.locator(f"{figure} .chart circle.dot.main").count() == 2
