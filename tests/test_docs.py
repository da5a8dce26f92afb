"""The tutorials run as they stand, and print what they show."""

import html
import itertools
import re
import subprocess
import sys
from pathlib import Path

import griffe
import pytest
import yaml
from markdown import Markdown
from markdown_it import MarkdownIt
from sklearn.utils import Bunch

import documents
import expost
from expost.report import document_of
from papers.datasets import load_adult
from report.epsilon_choices import chosen
from report.results import RESULTS

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from docs_docstrings import Readable  # noqa: E402 (a tool, not a package)
from docs_site import site_link  # noqa: E402 (the same)

DOCS = ROOT / "docs"
TABLE = DOCS / "tutorials" / "index.md"
TUTORIALS = sorted(set((DOCS / "tutorials").glob("*.md")) - {TABLE})
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", TUTORIALS, ids=named)
def test_a_tutorial_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sklearn.datasets.fetch_openml", adult_of_openml)
    documents.run(TABLE, tmp_path, program, {})
    # Every page starts from the two files and from no name of another page.
    assert documents.run(page, tmp_path, program, {}) >= 2


def test_the_page_about_ledgers_prints_what_it_shows(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    documents.run(TABLE, tmp_path, program, {})
    released(program, "--epsilon=0.5", "--ledger=elsewhere.json", "--out=made")
    # A model that was made in Python has no path of a ledger next to it.
    Path("mine").mkdir()
    Path("made/model.json").rename("mine/model.json")
    assert documents.run(DOCS / "ledger.md", tmp_path, program, None) == 3


def released(program, *options):
    """Profile the patients of the tutorials."""
    given = ("--target=diagnosis", "--id=patient", "--encoding=public.json")
    assert program("profile", "patients.csv", *given, *options).code == 0


def test_the_page_about_identifiability_prints_what_it_shows(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    assert documents.run(DOCS / "identifiability.md", tmp_path, program, None) == 4


def write_visits():
    """Write visits of persons with one to eight of them; 268 have more than three."""
    rows = ["patient,ill,pressure"]
    for person in range(400):
        visits = 4 + person % 5 if person < 268 else 1 + person % 3
        rows += [f"p{person},{visit % 2},{person % 60 + visit}" for visit in range(visits)]
    Path("visits.csv").write_text("\n".join(rows) + "\n")


def test_the_page_about_persons_prints_what_it_shows(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    write_visits()
    assert documents.run(DOCS / "groups.md", tmp_path, program, None) == 1


STRICT = """\
[guarantee]
epsilon = 0.5
delta = 1e-5
audience = "public"
[rows]
certainty = 0.501
[utility]
auc = 0.8
[attacks]
required = ["lira-online", "rmia-online"]
auc = 0.9
tpr = [{ fpr = 0.01, at_most = 0.5 }]
"""


def test_the_page_about_the_command_line_prints_what_it_shows(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    documents.run(TABLE, tmp_path, program, {})
    write_visits()
    Path("people.csv").write_text("age,income\n30,low\n40\n")
    Path("strict.toml").write_text(STRICT)
    released(program, "--out=report")
    # Non-members, which no test can tell from the patients without the model.
    header, *rows = Path("patients.csv").read_text().splitlines()
    others = [
        re.sub(r"[^,]+(?=,\w+$)", lambda x: f"{float(x[0]) + 1e-5:.6f}", f"q{x}") for x in rows
    ]
    Path("others.csv").write_text("\n".join([header, *others]) + "\n")
    given = ("patients.csv", "--target=diagnosis", "--id=patient", "--seed=0")
    model = ("--model=report/model.json",)
    known = ("--encoding=public.json", "--epsilons=1", "--models=8", "--folds=0")
    for arguments in (
        ("epsilon", *given, *known, "--out=choice"),
        ("publish", *model, "--out=published"),
        ("audit", *given, *model, "--holdout=others.csv", "--references=8", "--out=audit"),
        ("dossier", "report", "published", "--context=public-model", "--out=dossier"),
    ):
        assert program(*arguments).code == 0
    Path("dossier/dossier.md").write_text("changed")
    Path("dossier/notes.txt").write_text("new")
    assert documents.run(DOCS / "cli.md", tmp_path, program, None) == 6


def test_import_expost_is_enough_for_the_names_that_pages_show():
    shown = {
        name
        for page in PAGES
        for block in documents.blocks(page)
        if block.kind == "python"
        for name in re.findall(r"(?<!from )(?<!import )\bexpost\.([a-z_]+)", block.text)
    }
    assert shown > {"ledger", "profile"}
    # torch is an extra. Modules that another test imported are attributes without __getattr__.
    for name in shown - {"torch"}:
        expost.__getattr__(name)


def test_the_page_about_reports_lists_the_figures_that_results_have():
    text = (DOCS / "reading-a-report.md").read_text()
    cells = dict(
        re.findall(r"^\| `(EpsilonChoice|Profile|Identifiability)` \| (.*) \|$", text, re.M)
    )
    grouped = document_of(RESULTS["profile"](), groups=[RESULTS["grouping"]()])
    assert listed(cells["Profile"]) == {*grouped.figures, "left-out"}
    assert listed(cells["EpsilonChoice"]) == {*document_of(chosen("enough")).figures}
    assert listed(cells["Identifiability"]) == {*document_of(RESULTS["identifiability"]()).figures}


def listed(cell):
    return set(re.findall(r"`([a-z-]+)`", cell))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_output_is_shown_in_blocks_that_run(page):
    """An indented command with its output below it would run in no test."""
    assert not re.findall(r"^    \$ expost .*(?:\\\n.*)*\n    \S.*", page.read_text(), re.MULTILINE)


def adult_of_openml(name, *, version, as_frame):
    """Return the first rows of Adult as OpenML has it, from the data that the tests install."""
    assert (name, version, as_frame) == ("adult", 2, True)
    table = load_adult().table.drop_columns(["split"]).slice(0, 4_000)
    return Bunch(frame=table.to_pandas().rename(columns={"income": "class"}))


def test_the_readme_prints_what_it_shows(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sklearn.datasets.fetch_openml", adult_of_openml)
    documents.run(TABLE, tmp_path, program, {})
    assert documents.run(ROOT / "README.md", tmp_path, program, {}) == 9


def test_the_page_about_tables_prints_what_it_shows(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    frame = adult_of_openml("adult", version=2, as_frame=True).frame
    frame.to_csv("adult.csv", index=False)
    assert documents.run(DOCS / "data.md", tmp_path, program, {}) == 2


@pytest.mark.parametrize(
    ("shown", "real", "varies", "same"),
    [
        ("a 1\n…\nb 2.50", "a  1\nx\n\nb 2.51", False, True),
        ("a 1\nb 2.50", "a 1\nx\nb 2.50", False, False),
        ("a 1\n…", "a 1\nb", False, True),
        ("a 1", "a 1\nb", False, False),
        ("a 1.00", "a 1.05", False, False),
        ("a 1.00", "a 1.05", True, True),
        ("a 569 rows", "a 570 rows", False, True),
        ("a 10 rows", "a 11 rows", False, False),
        ("a 1", "b 1", True, False),
    ],
)
def test_what_is_shown_is_compared(shown, real, varies, same):
    if same:
        documents.compare(shown, real, varies, "here")
    else:
        with pytest.raises(AssertionError, match="here"):
            documents.compare(shown, real, varies, "here")


def site_extensions() -> tuple[list[str], dict]:
    names, settings = [], {}
    for entry in yaml.safe_load((ROOT / "mkdocs.yml").read_text())["markdown_extensions"]:
        ((name, options),) = entry.items() if isinstance(entry, dict) else [(entry, {})]
        names.append(name)
        settings[name] = options
    settings["toc"] = {}  # without the sign beside each heading
    return names, settings


def words(page: str) -> str:
    return re.sub(r"\s+", "", html.unescape(re.sub(r"<[^>]*>", "", page)))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_site_and_the_repository_show_the_same_text(page):
    """Two readers of Markdown: the site's, and the one of repositories (CommonMark)."""
    text = re.sub(r"<!--.*?-->", "", page.read_text())
    names, settings = site_extensions()
    site = Markdown(extensions=names, extension_configs=settings).convert(text)
    repository = MarkdownIt("commonmark").enable("table").render(text)
    assert words(site) == words(repository)
    for tag in ("li", "table", "td", "strong", "img", "h2", "h3"):
        assert len(re.findall(f"<{tag}[ />]", site)) == len(
            re.findall(f"<{tag}[ />]", repository)
        ), tag


def test_formulas_are_not_taken_for_emphasis():
    for page in PAGES:
        for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
            for part in token.children or ():
                assert (part.type, part.markup) != ("em_open", "_"), (page.name, token.content)


def test_there_are_at_most_twenty_pages_for_users():
    for_contributors = {DOCS / "architecture.md", DOCS / "dependencies.md"}
    guides = set(DOCS.glob("*.md")) - for_contributors
    assert len(guides) + len([TABLE, *TUTORIALS]) <= 20


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert f" {page.relative_to(DOCS).as_posix()}\n" in text, page


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_and_headings_exist(page):
    for link, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        target = (page.parent / link).resolve() if link else page
        assert target.exists(), link
        if heading and target.parent.name != "api":
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in slugs, (link, heading)


def test_the_diffs_of_the_architecture_apply():
    diffs = [x for x in documents.blocks(DOCS / "architecture.md") if x.kind == "diff"]
    assert len(diffs) == 2
    for diff in diffs:
        check = ["git", "apply", "--check", "-"]
        subprocess.run(check, input=diff.text, text=True, cwd=ROOT, check=True)


def test_every_picture_is_shown_on_a_page():
    pictures = {path.name for path in (DOCS / "images").iterdir()}
    shown = [re.findall(r"images/([\w.-]+)\)", page.read_text()) for page in PAGES]
    assert pictures == set(itertools.chain(*shown))


def test_the_citation_names_this_version_and_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == version[1]
    assert citation["license"] == "Apache-2.0"
    assert [reference["year"] for reference in citation["references"]] == [2023, 2021, 2020]


class Site:
    """The files of a site, by their paths."""

    def __init__(self, *paths: str) -> None:
        self.paths = paths

    def get_file_from_path(self, path: str) -> str | None:
        return path if path in self.paths else None


@pytest.mark.parametrize(
    ("link", "page", "on_the_site"),
    [
        ("docs/audit.md", "index.md", "audit.md"),
        ("SECURITY.md", "index.md", "security.md"),
        ("docs/images/a.png", "index.md", "images/a.png"),
        ("../SECURITY.md", "audit.md", "security.md"),
        ("../../README.md", "tutorials/risk.md", "../index.md"),
        ("../audit.md", "tutorials/risk.md", "../audit.md"),
        ("audit.md", "audit.md", "audit.md"),
        ("docs/audit.md", "security.md", "audit.md"),
        ("examples/4-auditing-a-forest.ipynb", "index.md", "examples/4-auditing-a-forest.md"),
        ("../docs/audit.md", "examples/4-auditing-a-forest.md", "../audit.md"),
        ("../README.md", "examples/4-auditing-a-forest.md", "../index.md"),
    ],
)
def test_links_of_the_repository_lead_to_pages_of_the_site(link, page, on_the_site):
    notebook = "examples/4-auditing-a-forest.md"
    site = Site("index.md", "security.md", "audit.md", "images/a.png", notebook)
    assert site_link(link, page, site) == on_the_site


def test_a_link_to_what_the_site_has_not_is_a_warning(caplog):
    assert site_link("../src/expost/cli.py", "audit.md", Site("audit.md")) == "../src/expost/cli.py"
    assert "src/expost/cli.py" in caplog.text


def test_docstrings_are_read_with_their_sections_and_without_roles():
    package = griffe.load(
        "expost",
        search_paths=[ROOT / "src"],
        extensions=griffe.load_extensions(Readable),
        docstring_parser="numpy",
    )
    law = package["noise.base.Noise.law"].docstring
    assert [section.kind.value for section in law.parsed] == ["text", "parameters", "returns"]
    gaussian = package["noise.gaussian.Gaussian"].docstring
    assert "See `noise.Noise` for the methods" in gaussian.value
    computed = package["estimators.PrivateRidge"].docstring.parsed
    names = [entry.name for section in computed if section.kind.value == "parameters"
             for entry in section.value]  # fmt: skip
    assert {"epsilon", "label_range", "random_state"} <= set(names)
