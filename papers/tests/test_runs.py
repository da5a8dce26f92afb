"""One command, one folder: every file is there and whole, or none is; the page escapes."""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import papers.__main__
from expost.errors import InvalidInput, MissingExtra
from expost.files.atomic import write_bytes
from papers.__main__ import app, main
from papers.common import reproduction
from papers.common.claims import Check, Claim
from papers.common.exhibits import Exhibit, Table
from papers.common.figures import png
from papers.common.page import Paper, render_page
from papers.common.reproduction import Reproduction, write
from papers.d53 import run as d53
from papers.leblond import run as leblond
from papers.redberg_wang import run as redberg_wang
from program import names as names_of

from .conftest import SMALL, small_adult
from .credit import SMALL_COUNTS, small_credit

DOCS = Path(__file__).parents[2] / "docs"
HOSTILE = '</style><script>alert("x")</script><img src=x onerror=alert(1)>&lt;{{ 7*7 }}'


@dataclass(frozen=True, kw_only=True)
class Case:
    """A paper: its command, the keys of its claims, its figures, and small data in its place."""

    command: str
    claims: str
    figures: frozenset[str]
    phases: int
    reproduce: Callable[..., Reproduction]
    patches: tuple[tuple[object, str, Callable], ...] = ()
    # The data set is read only after every argument was checked.
    first: tuple[object, str] = (d53, "PARTS")
    most_bytes: int = 100_000
    # Tables that another seed changes, and tables that no seed changes.
    sampled: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()


def bounds(out, **options):
    return d53.reproduce(out, parts=["bounds"], **options)


CASES = {
    case.command: case
    for case in (
        Case(
            command="leblond",
            claims="abcdefghij",
            figures=frozenset(
                {
                    *("fig1", "fig1-default", "fig2", "fig3", "fig4a", "fig4b", "fig5a", "fig5b"),
                    *("fig6", "fig7", "fig8", "gaussian", "objective", "coverage-peak"),
                    *("dimension", "regularization"),
                }
            ),
            phases=leblond.PHASES,
            reproduce=leblond.reproduce,
            patches=(
                (leblond, "load_adult", lambda path: small_adult()),
                (leblond, "Effort", lambda: SMALL),
            ),
            first=(leblond, "load_adult"),
            most_bytes=60_000,
            sampled=frozenset(
                {
                    *("fig1", "fig5a", "fig6", "fig7-onset", "fig8", "coverage-peak-rows"),
                    *("gaussian", "objective", "objective-profiles"),
                }
            ),
            exact=frozenset({"fig2", "fig3", "fig4a", "fig7", "dimension", "regularization"}),
        ),
        Case(
            command="redberg-wang",
            claims="abcdefghijk",
            figures=frozenset({"fig1", "fig2", "fig3a", "fig3b", "linear"}),
            phases=redberg_wang.PHASES,
            reproduce=redberg_wang.reproduce,
            patches=(
                (redberg_wang, "load_credit_default", lambda path: small_credit()),
                (redberg_wang, "Counts", lambda: SMALL_COUNTS),
            ),
            first=(redberg_wang, "load_credit_default"),
            sampled=frozenset(
                {
                    *("fig1", "fig1-terms", "fig2", "fig3-independent", "fig3-dependent"),
                    *("fig3-quantiles", "fig3b-medians", "linear-independent", "linear-dependent"),
                    "linear-quantiles",
                }
            ),
        ),
        Case(
            command="d5.3",
            claims="abcdefghijklmn",
            figures=frozenset(
                {
                    *("fig3.2", "fig4.1", "fig4.2", "theorem2", "proposition2", "composition"),
                    "published",
                }
            ),
            phases=d53.phases(["bounds"]),
            reproduce=bounds,
        ),
    )
}


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def made(case, tmp_path_factory):
    """The folder of one run on small data, its result and the phases that it reported."""
    out, phases = tmp_path_factory.mktemp("out") / "deep" / "folder", []
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in case.patches:
            patch.setattr(module, name, value)
        # Coarse pictures: their pixels take most of the time.
        patch.setattr(reproduction, "png", lambda figure: png(figure, dpi=20))
        options = {"data": Path("/somewhere/rows.csv")} if case.patches else {}
        result = case.reproduce(out, phase=phases.append, **options)
    return result, out, phases


def tables(reproduction):
    return {
        stem: t.csv() for exhibit in reproduction.exhibits for stem, t in exhibit.tables.items()
    }


def test_every_file_is_there_and_every_phase_is_reported(case, made):
    reproduction, out, phases = made
    assert len(phases) == len(set(phases)) == case.phases
    names = names_of(out)
    assert names == {path.name for path in reproduction.files}
    assert {f"{stem}.png" for stem in case.figures} == {n for n in names if n.endswith(".png")}
    assert {f"{stem}.csv" for stem in tables(reproduction)} == {
        n for n in names if n.endswith(".csv")
    }
    assert reproduction.files[-1] == out / "index.html"
    # The file that was read is named, and not its folder.
    assert "somewhere" not in reproduction.source
    assert ("rows.csv" in reproduction.source) == bool(case.patches)
    for path in reproduction.files:
        assert "CURATOR-ONLY" not in path.name
        assert path.stat().st_mode & 0o777 == 0o644
        assert 0 < path.stat().st_size < 3_000_000


def test_claims_in_json_on_the_page_and_at_the_terminal(case, made):
    reproduction, out, _ = made
    saved = json.loads((out / "claims.json").read_text("utf-8"))
    assert [record["key"] for record in saved["claims"]] == list(case.claims)
    text = (out / "index.html").read_text("utf-8")
    words, lines = " ".join(Tags(text).texts), "\n".join(reproduction.lines())
    for record, claim in zip(saved["claims"], reproduction.claims, strict=True):
        assert record["verdict"] == claim.verdict.value
        assert f"({claim.key}) {claim.verdict.value}" in lines
        assert claim.outcome in words
        assert f'<tr id="claim-{claim.key}">' in text
        assert set(claim.figures) <= case.figures
    assert str(out.resolve() / "index.html") in lines
    assert not re.search(r"\b(nan|inf)\b", re.sub(r"base64,[^\"]+", "", text))


def test_the_page_needs_nothing_from_outside(case, made):
    reproduction, out, _ = made
    text = (out / "index.html").read_text("utf-8")
    page = Tags(text)
    assert not page.all("script") + page.all("link") + page.all("iframe")
    policy = next(
        a["content"] for a in page.all("meta") if "content" in a and "default" in a["content"]
    )
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"'sha256-{digest}'" in policy
    assert len(page.all("img")) == len(case.figures)
    assert all(a["src"].startswith("data:image/png;base64,") and a["alt"] for a in page.all("img"))
    names = {path.name for path in reproduction.files}
    places = {a["id"] for _, a in page.tags if "id" in a}
    for link in page.all("a"):
        assert link["href"] in names or link["href"].removeprefix("#") in places
    assert "style=" not in text


def test_whatever_comes_from_outside_is_escaped():
    claim = Claim(
        key="a",
        says=HOSTILE,
        where=HOSTILE,
        outcome=HOSTILE,
        checks=(Check(what=HOSTILE, value=float("nan"), relation="<=", bound=1.0),),
        figures=("fig2",),
    )
    exhibit = Exhibit(
        name="fig2",
        title=HOSTILE,
        caption=HOSTILE,
        draw=lambda: None,
        tables={"fig2": Table(columns={"x": [1]}, note=HOSTILE)},
        errata=(HOSTILE,),
    )
    text = render_page(
        Paper(name=HOSTILE, title=HOSTILE, data=HOSTILE, made_from=HOSTILE),
        claims=(claim,),
        exhibits=(exhibit,),
        pictures={"fig2": b"x"},
        source=HOSTILE,
        seed=0,
        made=HOSTILE,
    )
    page = Tags(text)
    assert not page.all("script")
    assert [a["src"] for a in page.all("img")] == ["data:image/png;base64,eA=="]
    assert text.count("onerror") == text.count("onerror=alert(1)&gt;")
    assert "".join(page.texts).count(HOSTILE) >= 13


@pytest.mark.parametrize(
    "name",
    [
        "redberg-wang",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("leblond", "d5.3")),
    ],
)
def test_the_same_seed_gives_the_same_tables(name, tmp_path, monkeypatch):
    for module, attribute, value in CASES[name].patches:
        monkeypatch.setattr(module, attribute, value)
    monkeypatch.setattr(reproduction, "png", lambda figure: b"picture")
    first, again, other = (
        CASES[name].reproduce(tmp_path / str(number), seed=seed)
        for number, seed in enumerate((0, 0, 1))
    )
    assert tables(again) == tables(first)
    assert again.to_json() == first.to_json()
    assert other.to_json() != first.to_json()
    changed = {stem for stem, content in tables(other).items() if content != tables(first)[stem]}
    assert CASES[name].sampled <= changed
    assert not CASES[name].exact & changed


def test_wrong_folders_and_seeds_are_refused_before_any_work(case, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("the work was started")

    monkeypatch.setattr(*case.first, {"bounds": (never, 4)} if case.first[0] is d53 else never)
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    out = tmp_path / "out"
    for folder, options, message in (
        (tmp_path, {}, "not empty"),
        (kept, {}, "is a file"),
        (out, {"seed": -1}, "seed="),
    ):
        with pytest.raises(InvalidInput, match=message):
            case.reproduce(folder, **options)
    assert not out.exists()
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("name", ["leblond", "redberg-wang"])
def test_other_data_is_refused_and_nothing_is_written(name, tmp_path):
    wrong = tmp_path / "people.csv"
    wrong.write_text("age,income\n3,4\n")
    for data in (wrong, tmp_path / "absent.csv"):
        with pytest.raises(InvalidInput):
            CASES[name].reproduce(tmp_path / "out", data=data)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def small(monkeypatch):
    """A reproduction of one claim without a figure."""
    monkeypatch.setattr(reproduction, "png", lambda figure: b"picture")
    check = Check(what="x", value=1.0, relation="<=", bound=2.0)
    claim = Claim(key="a", says="s", where="w", outcome="f", checks=(check,))
    exhibits = tuple(
        Exhibit(
            name=f"fig{number}",
            title="t",
            caption="c",
            draw=lambda: None,
            tables={f"fig{number}": Table(columns={"x": [number]})},
        )
        for number in range(3)
    )
    paper = Paper(name="n", title="t", data="d", made_from="m")
    return Reproduction(
        paper=paper, claims=(claim,), exhibits=exhibits, source="s", seed=0, made="m"
    )


def test_a_figure_that_fails_leaves_nothing(tmp_path, monkeypatch, small):
    def fails(figure):
        raise ArithmeticError("no figure")

    monkeypatch.setattr(reproduction, "png", fails)
    with pytest.raises(ArithmeticError):
        write(small, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_no_page_of_an_earlier_run(tmp_path, monkeypatch, small):
    out = tmp_path / "out"
    write(small, out)
    left = 5

    def full(path, audience, content):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        return write_bytes(path, audience, content)

    monkeypatch.setattr(reproduction, "write_bytes", full)
    with pytest.raises(InvalidInput, match="No space left"):
        write(small, out)
    assert not (out / "index.html").exists()
    assert not list(out.glob(".*.part"))


def test_the_documentation_shows_small_pictures_and_every_claim(case):
    text = (DOCS / "papers" / f"{case.command.replace('.', '')}.md").read_text("utf-8")
    shown = re.findall(r"\(\.\./(images/.+?)\)", text)
    assert len(shown) >= 3
    for name in shown:
        assert 1000 < (DOCS / name).stat().st_size < case.most_bytes
    for key in case.claims:
        assert f"| {key} |" in text


# The command.


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=True)


def module_of(command):
    return import_module(f"papers.{command.replace('-', '_').replace('.', '')}.run")


def test_help_names_the_papers():
    shown = run("--help")
    assert shown.exit_code == 0
    assert all(name in shown.output for name in ("lecture", *CASES))


def test_options_reach_the_paper_and_open_shows_the_page(case, small, tmp_path, monkeypatch):
    """The papers take a while: they are not made again here."""
    given, opened = {}, []

    def stand_in(out, **options):
        given.update(options, out=out)
        options["phase"]("one")
        return replace(small, files=(tmp_path / "claims.json", tmp_path / "index.html"))

    monkeypatch.setattr(module_of(case.command), "reproduce", stand_in)
    monkeypatch.setattr(papers.__main__, "show", opened.append)
    shown = run(case.command, "--out", tmp_path / "o", "--seed", 3, "--force", "--open")
    assert shown.exit_code == 0
    assert (given["seed"], given["out"], given["force"]) == (3, tmp_path / "o", True)
    assert "(a) holds" in shown.output
    assert opened == [tmp_path / "index.html"]
    assert run(case.command, "--out", tmp_path / "o").exit_code == 0
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ([], ["bounds", "training"]),
        (["--bounds"], ["bounds"]),
        (["--training"], ["training"]),
        (["--training", "--bounds"], ["bounds", "training"]),
    ],
)
def test_flags_name_the_parts_and_none_means_both(small, tmp_path, monkeypatch, flags, parts):
    given = {}

    def stand_in(out, **options):
        given.update(options)
        return small

    monkeypatch.setattr(d53, "reproduce", stand_in)
    data = tmp_path / "mnist.npz"
    options = ["--trainings", 40, "--data", data, "--workers", 1]
    assert run("d5.3", *flags, *options, "--out", tmp_path / "out").exit_code == 0
    assert given["parts"] == parts
    request = given["request"]
    assert (request.data, request.effort.trainings, request.workers) == (data, 40, 1)


def test_without_torch_the_extra_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for flags in ([], ["--training"]):
        result = run("d5.3", *flags, "--out", tmp_path / "out")
        assert isinstance(result.exception, MissingExtra)
        assert "pip install 'expost[torch]'" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "kept.txt").write_text("mine")
    monkeypatch.setattr("sys.argv", ["papers", "leblond", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("papers: ")
    assert shown.count("\n") == 1
