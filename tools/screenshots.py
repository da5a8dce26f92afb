"""The pictures of the documentation that show expost's pages and figures: ``make screenshots``.

    python tools/screenshots.py [NAME ...]

makes all of them, or those named here. What is pictured is what a user gets: the program is run on
Adult (48,842 people, see papers.datasets) and on the patients of the tutorials.

report     page of the README's profile
epsilon    page of a choice of ε
audit      page of an audit of a decision tree on a part of the rows, and its ROC curves
published  page of a published report with the answer to a person
dossier    page of a dossier of a model of a part of the rows
patients   figures of the commands risk and epsilon, and of docs/epsilon.md
figures    figures of docs/papers/figures.md
"""

import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import documents  # noqa: E402  (the tests' own way to run a page)
from browser.finding import FLAGS, find  # noqa: E402  (the tests' own way to a browser)
from papers.datasets import load_adult  # noqa: E402

IMAGES = ROOT / "docs" / "images"
# Width and height in CSS pixels; the picture of a phone has its pixels twice as dense.
SIZES = {"desktop": (1280, 1500, 1.0), "phone": (390, 1500, 2.0)}
SCHEMES = ("light", "dark")
LARGEST = 300_000
# Rows of the audit: its reference models are fitted to halves of them.
AUDITED = 2_000
# What a person types on the page of the published report, in the order of its fields.
PERSON = ("39", "13", "Never-married", "Male", "40")
# Bounds that are known without the data, so that a report of the model is public.
PUBLIC = {
    "columns": {
        "age": {"mean": 40, "scale": 15, "unit": "years"},
        "education-num": {"mean": 10, "scale": 3, "unit": "years"},
        "hours-per-week": {"mean": 40, "scale": 12, "unit": "hours"},
        "sex": {"levels": ["Female", "Male"]},
        "marital-status": {"levels": ["Married-civ-spouse", "Never-married", "Divorced"]},
    }
}
REPORT = "report.CURATOR-ONLY.html"
CLASS = ("--target", "class")
KNOWN = ("--encoding=constants.json", "--classes=<=50K,>50K")


def main() -> None:
    """Make the figures, and four pictures of the top of each page."""
    names = sys.argv[1:] or list(MAKERS)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        # Names without folders, as they are typed.
        with contextlib.chdir(folder):
            write_tables()
            pages = {name: page for name in names if (page := MAKERS[name]())}
        browser = playwright.chromium.launch(executable_path=find(), args=list(FLAGS))
        for name, page in pages.items():
            for size in SIZES:
                for scheme in SCHEMES:
                    path = IMAGES / f"{name}-{size}-{scheme}.png"
                    path.write_bytes(picture(browser, Path(folder) / page, size, scheme))
                    print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
        browser.close()


def write_tables() -> None:
    """Write Adult as OpenML has it, parts of it, and constants that are known without it."""
    table = load_adult().table.drop_columns(["split"])
    table = table.rename_columns(["class" if x == "income" else x for x in table.column_names])
    known = table.select([x for x in table.column_names if x in {*PUBLIC["columns"], "class"}])
    for name, rows in (
        ("adult", table),
        ("some", table.slice(0, AUDITED)),
        ("known", known),
        ("some-known", known.slice(0, AUDITED)),
        ("others-known", known.slice(AUDITED, AUDITED)),
    ):
        pyarrow.csv.write_csv(rows, f"{name}.csv")
    Path("constants.json").write_text(json.dumps(PUBLIC))


def make_report() -> str:
    """Make the page of the README's profile."""
    expost("profile", "adult.csv", *CLASS, "--drop=fnlwgt", "--epsilon=0.3", "--out=report")
    return f"report/{REPORT}"


def make_epsilon() -> str:
    """Make the page of a choice of ε."""
    expost("epsilon", "adult.csv", *CLASS, "--out=epsilon")
    return f"epsilon/{REPORT}"


def make_audit() -> str:
    """Make the page of an audit of a tree, and its ROC curves."""
    tree = ("--estimator=sklearn.tree.DecisionTreeClassifier", "--references=16", "--seed=0")
    expost("audit", "some.csv", *CLASS, *tree, "--out=audit")
    shutil.copy("audit/roc.CURATOR-ONLY.png", IMAGES / "audit-roc.png")
    return f"audit/{REPORT}"


def make_published() -> str:
    """Make the page of a published report."""
    expost("profile", "known.csv", *CLASS, *KNOWN, "--out=known")
    expost("publish", "--model=known/model.json", "--out=published")
    return "published/report.html"


def make_dossier() -> str:
    """Make the page of a dossier."""
    expost("profile", "some-known.csv", *CLASS, *KNOWN, "--out=small")
    given = (
        "--model=small/model.json",
        "--holdout=others-known.csv",
        "--references=128",
        "--group=sex",
    )
    expost("audit", "some-known.csv", *CLASS, *given, "--out=attacked")
    ledger = "some-known.ledger.CURATOR-ONLY.json"
    expost("dossier", "small", "attacked", ledger, "--context=public-model", "--out=dossier")
    return "dossier/dossier.html"


def make_patients() -> None:
    """Make the figures of the commands on the patients, and of docs/epsilon.md."""
    run_python(ROOT / "docs" / "tutorials" / "index.md")
    known = ("--target=diagnosis", "--id=patient", "--encoding=public.json", "--seed=0")
    expost("epsilon", "patients.csv", *known, "--picture", "--out=choice")
    shutil.copy("choice/transition.CURATOR-ONLY.png", IMAGES / "transition.png")
    expost("risk", "--epsilon=1", "--delta=1e-5", "--plot=risk.png")
    shutil.copy("risk.png", IMAGES)
    names = run_python(ROOT / "docs" / "epsilon.md", blocks=1)
    (IMAGES / "frontier.png").write_bytes(names["choice"].plot("frontier").png())


def make_figures() -> None:
    """Make the figures of docs/papers/figures.md."""
    with contextlib.chdir(ROOT):
        run_python(ROOT / "docs" / "papers" / "figures.md")


MAKERS: dict[str, Callable[[], str | None]] = {
    "report": make_report,
    "epsilon": make_epsilon,
    "audit": make_audit,
    "published": make_published,
    "dossier": make_dossier,
    "patients": make_patients,
    "figures": make_figures,
}


def run_python(page: Path, blocks: int | None = None) -> dict:
    """Return the names that the first Python blocks of the page define."""
    names: dict = {}
    for block in [each for each in documents.blocks(page) if each.kind == "python"][:blocks]:
        with contextlib.redirect_stdout(None):
            exec(compile(block.text, page.name, "exec"), names)
    return names


def expost(*arguments: object) -> str:
    """Return the output of the program."""
    program = Path(sys.executable).with_name("expost")
    command = [program, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def picture(browser: Browser, page: Path, size: str, scheme: str) -> bytes:
    """Save the top of the page as a small PNG of 256 colours."""
    width, height, density = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        device_scale_factor=density,
    )
    shown = context.new_page()
    shown.goto(page.resolve().as_uri())
    look_up(shown)
    taken = Image.open(io.BytesIO(shown.screenshot()))
    context.close()
    small = io.BytesIO()
    taken.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    if small.tell() > LARGEST:
        raise SystemExit(f"{size}, {scheme}: {small.tell():,} bytes are more than {LARGEST:,}.")
    return small.getvalue()


def look_up(page: Page) -> None:
    """Type the values of a person and show the answer, if the page has a form."""
    fields = page.locator("[data-widget=form] [data-value]").all()
    for field, value in zip(fields, PERSON, strict=bool(fields)):
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(label=value)
        else:
            field.fill(value)
    if fields:
        page.locator("[data-show]").click()
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")


if __name__ == "__main__":
    main()
