"""Looking rows up in a real browser: by number, by id, and by values in the curator's own file."""

import gzip
import re
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect

import expost
import expost.report as report
from expost.data import open_table
from expost.report.rows import rows_of_profile
from report.conftest import HOSTILE, fitted, noiseless, synthetic

ROWS = 130
IDS = (*(f"Person-{number}" for number in range(ROWS - 3)), HOSTILE, "Ångström", "7")


def page_of(profile, **options):
    return report.render_html(report.collect(profile, **options))


def numbered():
    return page_of(synthetic(ROWS))


def keyed():
    return page_of(synthetic(ROWS, ids=IDS))


def results(page, where="[data-search-results]"):
    """Rows of a table of results, as texts by their heading."""
    table = page.locator(where)
    if not table.is_visible():
        return []
    heads = table.locator("thead th").all_inner_texts()
    return [
        dict(zip(heads, line.locator("th, td").all_inner_texts(), strict=True))
        for line in table.locator("tbody tr").all()
    ]


def rank_of(profile, row):
    return list(profile.ranking).index(row) + 1


def test_a_number_finds_its_row_first_and_then_those_that_begin_alike(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    profile = synthetic(ROWS)
    page.get_by_label("Number of the row").fill("12")
    found = results(page)
    expected = [row for row in range(ROWS) if str(row).startswith("12") and row != 12]
    expected.sort(key=lambda row: rank_of(profile, row))
    assert [line["row"] for line in found] == ["12", *map(str, expected)]
    for line in found:
        row = int(line["row"])
        assert line["rank"] == str(rank_of(profile, row))
        assert float(line["exposure (nats)"]) == pytest.approx(profile.exposure[row], rel=5e-3)
        less = np.mean(profile.exposure < profile.exposure[row])
        assert float(line["more exposed than"].split()[0]) == pytest.approx(100 * less, abs=0.051)
        belief = float(line["belief that it was in"].split()[0])
        assert belief == pytest.approx(100 * profile.posterior[row], abs=0.051)
    assert page.locator("[data-search-status]").inner_text() == "11 rows match."


@pytest.mark.parametrize(
    ("asked", "said"), [("999", "No row matches."), ("12.5", "No row matches."), ("", "")]
)
def test_what_is_not_there_is_not_found(open_page, shelf, asked, said):
    page = open_page(shelf("search-numbered", numbered))
    box = page.get_by_label("Number of the row")
    box.fill("5")
    assert results(page)
    box.fill(asked)
    assert results(page) == []
    assert page.locator("[data-search-status]").inner_text() == said


def test_ids_are_found_whatever_their_case(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    profile = synthetic(ROWS, ids=IDS)
    box = page.get_by_label("Id or number of the row")
    box.fill("pErSoN-12")
    found = results(page)
    assert found[0]["row"] == "Person-12"
    assert found[0]["rank"] == str(rank_of(profile, 12))
    assert found[0]["number"] == "12"
    assert {line["row"] for line in found[1:]} == {f"Person-12{digit}" for digit in range(7)}
    box.fill("ÅNG")
    assert [line["row"] for line in results(page)] == ["Ångström"]
    # An id goes before a number that reads alike.
    box.fill("7")
    assert [line["number"] for line in results(page)] == [str(ROWS - 1), "7"]
    box.fill("row 9")
    assert [line["row"] for line in results(page)] == ["Person-9"]


def test_hostile_ids_are_text(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    page.get_by_label("Id or number of the row").fill("</style><script>")
    (line,) = results(page)
    assert line["row"].startswith('</style><script>alert("x")</script>')
    assert line["row"].endswith("\\n\\u202e&lt;")
    assert page.locator("[data-search-results] script, [data-search-results] img").count() == 0


def test_many_matches_are_counted_and_the_most_exposed_shown(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    page.get_by_label("Id or number of the row").fill("person")
    assert (
        "127 rows match. The 50 most exposed of them are shown."
        in page.locator("[data-search-status]").inner_text()
    )
    ranks = [int(line["rank"]) for line in results(page)]
    assert len(ranks) == 50
    assert ranks == sorted(ranks)


def test_results_follow_the_slider(open_page, shelf):
    release, _, _, profile = fitted()
    page = open_page(shelf("search-slider", lambda: page_of(profile, release=release)))
    page.get_by_label("Number of the row").fill("3")
    before = float(results(page)[0]["typical exposure at ε = 2"])
    assert before == pytest.approx(profile.expected[3], rel=5e-3)
    page.get_by_label("ε =", exact=True).fill("4")
    expect(page.locator("[data-search-results] thead")).to_contain_text("ε = 4")
    assert float(results(page)[0]["typical exposure at ε = 4"]) > 1.9 * before


def test_without_noise_there_are_distances(open_page, shelf):
    page = open_page(shelf("search-noiseless", lambda: page_of(noiseless(20))))
    page.get_by_label("Number of the row").fill("0")
    (line,) = results(page)
    assert line["distance"] == "0"
    assert line["more exposed than"].split() == ["0", "%", "of", "all"]
    assert "exposure (nats)" not in line


def test_without_scripts_it_says_so(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered), scripts=False)
    assert "The search needs JavaScript" in page.locator("[data-search]").inner_text()
    assert not page.locator("[data-search] input").first.is_visible()


# -- by values -------------------------------------------------------------------------------------


def table(rows=ROWS, ids=None, newline="\r\n", delimiter=",", mark=""):
    """A file as hostile as RFC 4180 allows, one record a row."""
    cells = [
        f"{'' if ids is None else quoted(ids[row]) + delimiter}{row % 7}{delimiter}"
        f'"a{delimiter} ""b""{newline}{row % 5}"{delimiter} {"?" if row % 3 else ""}'
        for row in range(rows)
    ]
    head = (
        f'{"" if ids is None else "key" + delimiter}<b>age</b>{delimiter}"say ""so"""{delimiter}gap'
    )
    return mark + newline.join([head, *cells]) + newline


def quoted(text):
    return '"' + str(text).replace('"', '""') + '"'


def give(page, content, name="people.csv"):
    content = content if isinstance(content, bytes) else content.encode()
    # The status of the file before must not be taken for this one's.
    page.locator("[data-file-status]").evaluate("one => { one.textContent = ''; }")
    page.locator("#search-file").set_input_files(
        [{"name": name, "mimeType": "text/csv", "buffer": content}]
    )
    expect(page.locator("[data-file-status]")).not_to_have_text(re.compile("^(Reading …)?$"))
    return page.locator("[data-file-status]").inner_text()


def find(page, *conditions):
    """Search for rows that meet all conditions; the rows found, by key, in the order shown."""
    lines = page.locator(".condition")
    while lines.count() < len(conditions):
        page.get_by_role("button", name="one more condition").click()
    for line, (column, value) in zip(lines.all(), conditions, strict=True):
        line.get_by_label("column").select_option(label=column)
        line.get_by_label("value").fill(value)
    page.locator("[data-file-status]").evaluate("one => { one.textContent = ''; }")
    page.get_by_role("button", name="Find rows").click()
    expect(page.locator("[data-file-status]")).to_contain_text("match")
    return [line["row"] for line in results(page, "[data-file-results]")]


def by_rank(profile, rows):
    return sorted(rows, key=lambda row: rank_of(profile, row))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"newline": "\n", "delimiter": ";"},
        {"newline": "\r", "delimiter": "\t"},
        {"delimiter": "|", "mark": "\ufeff"},
    ],
)
def test_rows_are_found_by_their_values_in_the_order_of_the_file(
    open_page, shelf, tmp_path, options
):
    page = open_page(shelf("search-numbered", numbered))
    content = table(**options)
    # The same file, read by the library: it has the same rows, in the same order.
    path = tmp_path / "people.csv"
    path.write_bytes(content.encode())
    read = open_table(path)
    assert read.rows == ROWS
    assert "130 rows, 3 columns" in give(page, content)
    profile = synthetic(ROWS)
    ages = read.column("<b>age</b>").to_pylist()
    wanted = [row for row in range(ROWS) if ages[row] == 3]
    assert find(page, ("<b>age</b>", "3")) == list(map(str, by_rank(profile, wanted)))
    # As numbers, and with spaces around.
    assert find(page, ("<b>age</b>", " 3.0 ")) == list(map(str, by_rank(profile, wanted)))
    missing = read.column("gap").to_pylist()
    both = [row for row in wanted if missing[row] is None]
    assert 0 < len(both) < len(wanted)
    assert find(page, ("<b>age</b>", "3"), ("gap", "")) == list(map(str, by_rank(profile, both)))
    assert find(page, ("<b>age</b>", "8"), ("gap", "")) == []
    expect(page.locator("[data-file-status]")).to_contain_text("0 rows of the file match.")


def test_a_gzipped_file_is_read_like_another(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    assert "130 rows" in give(page, gzip.compress(table().encode()), "people.csv.gz")
    assert len(find(page, ("<b>age</b>", "0"))) == len(range(0, ROWS, 7))


def test_ids_tell_rows_apart_whatever_their_order(open_page, shelf):
    page = open_page(shelf("search-keyed", keyed))
    profile = synthetic(ROWS, ids=IDS)
    assert "130 rows, 4 columns" in give(page, table(ids=IDS))
    assert page.get_by_label("Rows are told apart by").locator("option").first.inner_text() == (
        "the ids in the column key"
    )
    wanted = by_rank(profile, range(4, ROWS, 7))
    keys = rows_of_profile(profile).keys
    ranked = [keys[rank_of(profile, row) - 1] for row in wanted]
    assert find(page, ("<b>age</b>", "4")) == ranked
    # The same rows, turned round and without some.
    content = "key,<b>age</b>\n" + "".join(
        f"{quoted(IDS[row])},{row % 7}\n" for row in reversed(range(20, ROWS))
    )
    assert "110 rows" in give(page, content)
    assert find(page, ("<b>age</b>", "4")) == [
        keys[rank_of(profile, row) - 1] for row in wanted if row >= 20
    ]


def test_a_column_of_small_numbers_is_not_taken_for_the_ids(open_page, shelf):
    """Every age is also somebody's id: the column that has each id once is the right one."""
    ids = tuple(map(str, range(ROWS)))
    page = open_page(shelf("search-small", lambda: page_of(synthetic(ROWS, ids=ids))))
    order = np.random.default_rng(3).permutation(ROWS)
    content = "age,id\n" + "".join(f"{row % 90},{row}\n" for row in order)
    give(page, content)
    ways = page.get_by_label("Rows are told apart by").locator("option").all_inner_texts()
    assert ways == ["the ids in the column id", "the order of the rows"]
    assert set(find(page, ("age", "5"))) == {"5", "95"}


def test_persons_are_found_through_any_of_their_rows(open_page, shelf):
    release, X, y, _ = fitted()
    groups = [f"g{row // 3}" for row in range(len(X))]
    profile = expost.profile(release, X, y, persons=groups)
    page = open_page(shelf("search-persons", lambda: page_of(profile, release=release)))
    content = "who,visit\n" + "".join(f"{groups[row]},{row % 4}\n" for row in range(len(X)))
    give(page, content)
    page.locator(".condition").get_by_label("column").select_option(label="visit")
    page.locator(".condition").get_by_label("value").fill("2")
    page.get_by_role("button", name="Find rows").click()
    expect(page.locator("[data-file-status]")).to_contain_text("match")
    found = [line["person"] for line in results(page, "[data-file-results]")]
    wanted = {groups[row] for row in range(2, len(X), 4)}
    assert set(found) == wanted
    assert f"of {len(wanted)} persons" in page.locator("[data-file-status]").inner_text()


REFUSED = [
    (b"PAR1\x00\x00PAR1", "This is a Parquet file"),
    ("a,b\n1,2\n".encode("utf-16"), "This is UTF-16 text"),
    (b"a,b\n1,\xff\n", "This is not UTF-8 text"),
    (gzip.compress(b"a,b\n" + bytes(range(40, 120)) * 40)[:-20], "damaged"),
    (b"", "This file is empty"),
    (b"\n\n", "is blank"),
    (b"a,b\n", "a header and no rows"),
    (b"a,b\n1,2,3\n", "has 3 cells where the header has 2"),
    (b"a,b\n1\n", "has 1 cells where the header has 2"),
    (b'a,b\n1,"2\n', "a quote is opened and never closed"),
    (b'a,b\n1,x"2"\n', "has a quote within a cell"),
    (b'a,b\n1,"2"x\n', "has a quote within a cell"),
    (b"a,b\r\n1,2\n", "ends differently from line 1"),
    (b"a,b\n1,2\r\n", "ends differently from line 1"),
    (b"a,b\n1,2\n\n3,4\n", "blank"),
    (b"a;b,c\n1;2,3\n", "not clear which character"),
    (b"a,b\n1,\x002\n", "NUL"),
    (b"a,b\n1,2\n", "the file has 1 rows and the profile 130"),
]


def test_a_file_that_is_not_the_table_is_refused(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    for content, said in REFUSED:
        assert said in give(page, content)
        assert not page.get_by_role("button", name="Find rows").is_visible()
    # The next file is read as if those had not been.
    assert "130 rows" in give(page, table())
    assert len(find(page, ("<b>age</b>", "0"))) == 19


def test_files_of_one_table_are_read_in_the_order_of_their_names(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    lines = [f"{row},{row % 10}\n" for row in range(ROWS)]
    parts = {"b.csv": lines[70:], "a.csv": lines[:70]}
    page.locator("#search-file").set_input_files(
        [
            {"name": name, "mimeType": "text/csv", "buffer": ("n,digit\n" + "".join(some)).encode()}
            for name, some in parts.items()
        ]
    )
    expect(page.locator("[data-file-status]")).to_contain_text("130 rows")
    assert set(find(page, ("digit", "4"))) == {str(row) for row in range(4, ROWS, 10)}


def test_cells_cut_by_the_ends_of_chunks_are_whole(open_page, shelf):
    """A browser reads a file in pieces of some ten thousand bytes: some cells, quotes and letters
    are cut by their ends."""
    rows = 1300
    page = open_page(shelf("search-long", lambda: page_of(synthetic(rows))))
    texts = [f'{"é" * (row % 97 * 3)}", {row % 13}' for row in range(rows)]
    content = "n,text\r\n" + "".join(f"{row},{quoted(texts[row])}\r\n" for row in range(rows))
    assert len(content.encode()) > 5 * 65_536
    assert "1,300 rows" in give(page, content)
    for row in (1, 333, 777, 1299):
        alike = {str(other) for other in range(rows) if texts[other] == texts[row]}
        assert set(find(page, ("text", texts[row]))) == alike
    assert len(find(page, ("text", '", 3'))) == 1


def test_no_cell_of_the_file_is_shown(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    secrets = [f"secret{row}x" for row in range(ROWS)]
    give(page, "name,even\n" + "".join(f"{secrets[row]},{row % 2}\n" for row in range(ROWS)))
    assert len(find(page, ("even", "1"))) == 50
    assert "secret" not in page.locator("body").inner_text()
    assert "secret" not in page.content()


def test_everything_can_be_done_by_keyboard(open_page, shelf):
    page = open_page(shelf("search-numbered", numbered))
    give(page, table())
    page.locator("#search-file").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "column"
    page.keyboard.press("Tab")
    page.keyboard.type("6")
    page.keyboard.press("Enter")
    expect(page.locator("[data-file-status]")).to_contain_text("18 rows of the file match.")
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".condition").count() == 2
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "column"
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".condition").count() == 1


def test_a_page_with_the_most_exposed_only_says_so(open_page, shelf):
    summary = report.collect(synthetic(ROWS))
    part = replace(summary.profile, row_data=rows_of_profile(synthetic(ROWS), most=20))
    page = open_page(
        shelf("search-cut", lambda: report.render_html(replace(summary, profile=part)))
    )
    assert "the 20 most exposed of 130 rows" in page.locator("[data-search]").inner_text()
    profile = synthetic(ROWS)
    page.get_by_label("Number of the row").fill(str(profile.ranking[25]))
    exact = [line for line in results(page) if line["row"] == str(profile.ranking[25])]
    assert exact == []
    give(page, table())
    find(page, ("<b>age</b>", "3"))
    beyond = sum(row % 7 == 3 for row in profile.ranking[20:])
    status = page.locator("[data-file-status]").inner_text()
    assert f"{beyond} of them are not among those that this page has." in status


def test_axe_finds_nothing_grave_where_everything_is_open(axe, shelf):
    release, X, _, profile = fitted()
    ids = [f"Person-{row}" for row in range(len(X))]
    keyed_profile = replace(profile, ids=tuple(ids))
    path = shelf("search-open", lambda: page_of(keyed_profile, release=release))
    page = axe.open(path)
    page.get_by_label("Id or number of the row").fill("person-1")
    give(page, table(rows=len(X), ids=ids))
    assert find(page, ("<b>age</b>", "3"), ("gap", "?"))
    page.get_by_label("ε =", exact=True).fill("100")
    page.get_by_role("slider", name="row by rank").focus()
    expect(page.locator("[data-above]")).to_be_visible()
    assert page.locator("[data-readout]").is_visible()
    found = axe.violations(page) + axe.contrasts(page)
    page.emulate_media(color_scheme="dark")
    found += axe.contrasts(page)
    assert [line for line in found if line.startswith(("serious", "critical"))] == []
