"""The pictures of the pages in the documentation: ``make screenshots``.

What is pictured is what a user gets: the program is run on Adult (48,842 people, see
papers.datasets). The pages are those of a profile, of a choice of ε, of an audit of a decision tree
on a part of the rows, of a published report, and of a dossier of a model of a part of the rows.
"""

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.csv
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from browser.finding import FLAGS, find  # noqa: E402  (the tests' own way to a browser)
from papers.datasets import load_adult  # noqa: E402

IMAGES = ROOT / "docs" / "images"
# Width and height in CSS pixels; the picture of a phone has its pixels twice as dense.
SIZES = {"desktop": (1280, 1500, 1.0), "phone": (390, 1500, 2.0)}
SCHEMES = ("light", "dark")
LARGEST = 300_000
# Rows of the audit: its reference models are fitted to halves of them.
AUDITED = 2_000
# Bounds that are known without the data, so that a report of the model is public.
PUBLIC = {
    "columns": {
        "age": {"mean": 40, "scale": 15},
        "education-num": {"mean": 10, "scale": 3},
        "hours-per-week": {"mean": 40, "scale": 12},
        "sex": {"levels": ["Female", "Male"]},
        "marital-status": {"levels": ["Married-civ-spouse", "Never-married", "Divorced"]},
    }
}


def main() -> None:
    """Make the pages, and take four pictures of the top of each."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = made(Path(folder))
        browser = playwright.chromium.launch(executable_path=find(), args=list(FLAGS))
        for name, page in pages.items():
            for size in SIZES:
                for scheme in SCHEMES:
                    path = IMAGES / f"{name}-{size}-{scheme}.png"
                    path.write_bytes(picture(browser, page, size, scheme))
                    print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
        browser.close()


def made(folder: Path) -> dict[str, Path]:
    """Return the pages: "report" is that of a profile."""
    table = load_adult().table.drop_columns(["split"])
    adult, some, encoding = (folder / name for name in ("adult.csv", "some.csv", "public.json"))
    pyarrow.csv.write_csv(table, adult)
    pyarrow.csv.write_csv(table.slice(0, AUDITED), some)
    encoding.write_text(json.dumps(PUBLIC))
    required = ("--target", "income", "--out")
    # Names without folders, as they are typed.
    os.chdir(folder)
    expost("profile", adult.name, "--epsilon", "0.3", *required, "profile")
    expost("epsilon", adult.name, *required, "epsilon")
    tree = ("--estimator", "sklearn.tree.DecisionTreeClassifier", "--references", "16")
    expost("audit", some.name, *tree, *required, "audit")
    drop = [f"--drop={name}" for name in table.column_names if name not in PUBLIC["columns"]]
    drop.remove("--drop=income")
    known = ("--encoding", encoding.name, "--classes", "<=50K,>50K", *drop)
    expost("profile", adult.name, *known, *required, "known")
    expost("publish", "--model", "known/model.json", "--out", "published")
    others = folder / "others.csv"
    pyarrow.csv.write_csv(table.slice(AUDITED, AUDITED), others)
    expost("profile", some.name, *known, *required, "small")
    small = ("--model", "small/model.json", "--holdout", others.name, "--references", "16")
    expost("audit", some.name, *small, "--group", "sex", *required, "attacked")
    ledger = "some.ledger.CURATOR-ONLY.json"
    given = ("--context", "public-model", "--out", "dossier")
    expost("dossier", "small", "attacked", ledger, *given)
    name = "report.CURATOR-ONLY.html"
    return {
        "report": folder / "profile" / name,
        "epsilon": folder / "epsilon" / name,
        "audit": folder / "audit" / name,
        "published": folder / "published" / "report.html",
        "dossier": folder / "dossier" / "dossier.html",
    }


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
    shown.goto(page.as_uri())
    taken = Image.open(io.BytesIO(shown.screenshot()))
    context.close()
    small = io.BytesIO()
    taken.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    if small.tell() > LARGEST:
        raise SystemExit(f"{size}, {scheme}: {small.tell():,} bytes are more than {LARGEST:,}.")
    return small.getvalue()


if __name__ == "__main__":
    main()
