"""How long the page of Adult's 48,842 rows takes to open, and what it weighs."""

import os
import statistics

import pytest

from evidence import record

from .pages import MANY
from .watching import DESKTOP

OPENINGS = 9
LARGEST = 3_000_000
SECONDS = 2.0

# From the start of the navigation: the document read and drawn once, and the scripts done so that
# the slider answers; in seconds.
TIMES = """() => {
    const [opened] = performance.getEntriesByType('navigation');
    const [drawn] = performance.getEntriesByName('first-contentful-paint');
    return {
        interactive: opened.domInteractive / 1000,
        loaded: opened.loadEventEnd / 1000,
        drawn: drawn.startTime / 1000,
    };
}"""
# From a key pressed on the slider to the next frame that shows the new figures; in seconds.
ANSWER = """() => new Promise(resolve => {
    const range = document.querySelector('input[type=range]');
    const start = performance.now();
    range.value = String(Number(range.value) + 100);
    range.dispatchEvent(new Event('input', {bubbles: true}));
    requestAnimationFrame(() => requestAnimationFrame(
        () => resolve((performance.now() - start) / 1000)));
})"""


def measured(open_page, path):
    """The times of one opening in a fresh context."""
    page = open_page(path, size=DESKTOP, fresh=True)
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
    return {**page.evaluate(TIMES), "slider": page.evaluate(ANSWER)}


def test_the_times_are_taken_of_a_page_that_works(open_page, made):
    assert made("large").stat().st_size <= LARGEST
    times = measured(open_page, made("large"))
    assert 0 < times["interactive"] <= times["loaded"]
    assert times["drawn"] > 0
    # Far from the goal of two seconds, because a busy machine proves nothing; see the long test.
    assert max(times.values()) < 10 * SECONDS


@pytest.mark.long
def test_a_page_as_large_as_adults_opens_in_under_two_seconds(open_page, made):
    path = made("large")
    runs = [measured(open_page, path) for _ in range(OPENINGS)]
    figures = {
        name: {
            "median": round(statistics.median(run[name] for run in runs), 4),
            "least": round(min(run[name] for run in runs), 4),
            "most": round(max(run[name] for run in runs), 4),
        }
        for name in runs[0]
    }
    size = path.stat().st_size
    record(
        "report-page",
        command="make test-long (tests/browser/test_speed.py)",
        seed=1,
        figures={
            "rows": MANY,
            "bytes": size,
            "openings": OPENINGS,
            "seconds": figures,
            "browser": open_page.browser.version,
            # A machine that does something else besides is slower: what is told is an upper end.
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        },
    )
    print(f"\n{MANY:,} rows, {size:,} bytes, {OPENINGS} openings in seconds: {figures}")
    assert figures["loaded"]["median"] < SECONDS
    assert figures["drawn"]["median"] < SECONDS
