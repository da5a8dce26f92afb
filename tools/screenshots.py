"""The pictures of the report in the documentation: ``make screenshots``.

What is pictured is what a user gets: the program is run on Adult (48,842 people, see
expost.datasets), a choice of ε and a profile at it, both on one page.
"""

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.csv
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from expost.datasets import load_adult

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser.finding import FLAGS, find  # noqa: E402  (the tests' own way to a browser)

IMAGES = ROOT / "docs" / "images"
# Width and height in CSS pixels; the picture of a phone has its pixels twice as dense.
SIZES = {"desktop": (1280, 1980, 1.0), "phone": (390, 1500, 2.0)}
SCHEMES = ("light", "dark")
LARGEST = 300_000


def main() -> None:
    """Make the page, and take four pictures of its top."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = made(Path(folder))
        browser = playwright.chromium.launch(executable_path=find(), args=list(FLAGS))
        for size in SIZES:
            for scheme in SCHEMES:
                path = IMAGES / f"report-{size}-{scheme}.png"
                path.write_bytes(picture(browser, page, size, scheme))
                print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
        browser.close()


def made(folder: Path) -> Path:
    """The report of a choice of ε and of a profile at that ε, of Adult."""
    table = load_adult().table.drop_columns(["split"])
    pyarrow.csv.write_csv(table, folder / "adult.csv")
    choice, profile, page = (folder / name for name in ("choice", "profile", "page"))
    asked = ("epsilon", folder / "adult.csv", "--target", "income", "--out", choice)
    # What it says to type next is typed, but for the folder.
    _, *following = json.loads(expost(*asked, "--json"))["command"]
    expost(*following[: following.index("--out")], "--out", profile)
    expost("report", choice, profile, "--out", page)
    return page / "report.CURATOR-ONLY.html"


def expost(*arguments: object) -> str:
    """What the program prints."""
    program = Path(sys.executable).with_name("expost")
    command = [program, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def picture(browser: Browser, page: Path, size: str, scheme: str) -> bytes:
    """The top of the page as a small PNG: 256 colours are enough for flat areas and text."""
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
