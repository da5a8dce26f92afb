"""The page's reader of CSV files against the library's: the same files, the same rows."""

import base64
import csv
import io
import random
from importlib.resources import files

import pytest

from expost.data._csv import read_shape
from expost.errors import InvalidInput

CELLS = ("", "a", " b ", "é", "1.5", '"x"', '"x, y;\tz|"', '"x ""y"""', '"x\ny"', '"x\r\ny"', '""')
JUNK = ('"', ",", ";", "\n", "\r\n", "\r", "é", "x", "\0", "\n\n")
CASES = 600
# Each file comes in pieces of a few bytes, so that every character is cut somewhere.
READ = """async contents => {
    const all = [];
    for (const [place, content] of contents.entries()) {
        const bytes = Uint8Array.from(atob(content), one => one.charCodeAt(0));
        const size = 1 + place % 5;
        const file = {
            slice: (from, to) => new Blob([bytes.slice(from, to)]),
            stream: () => new ReadableStream({
                start(to) {
                    for (let at = 0; at < bytes.length; at += size) {
                        to.enqueue(bytes.slice(at, at + size));
                    }
                    to.close();
                },
            }),
        };
        const found = [];
        try {
            for await (const records of recordsOf(file)) found.push(...records);
            all.push(found);
        } catch (error) {
            if (!(error instanceof FileProblem)) throw error;
            all.push(error.message);
        }
    }
    return all;
}"""


def made(rng):
    """A file as RFC 4180 has it, or one that was broken a little."""
    delimiter = rng.choice(",;\t|")
    newline = rng.choice(["\n", "\r\n", "\r"])
    width = rng.randint(1, 4)
    head = delimiter.join(rng.choice(["a", "b c", '"d"', '"e, f"', '""']) for _ in range(width))
    lines = [
        delimiter.join(rng.choice(CELLS).replace("\n", newline) for _ in range(width))
        for _ in range(rng.randint(1, 5))
    ]
    text = newline.join([head, *lines]) + rng.choice(["", newline, newline * 2])
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(JUNK) + text[place + rng.choice([0, 0, 1]) :]
    return rng.choice(["", "", "\ufeff"]) + text


def naive(text, shape):
    """The records by Python's own reader, where the library has found the file to be whole."""
    content = io.StringIO(text.removeprefix("\ufeff"), newline="")
    rows = list(csv.reader(content, delimiter=shape.delimiter, strict=True))
    while rows and rows[-1] == []:
        rows.pop()
    return rows


@pytest.fixture
def reader(open_page, tmp_path):
    path = tmp_path / "blank.html"
    path.write_text("<!doctype html><html lang=en><title>blank</title>")
    page = open_page(path, bypass=True)
    folder = files("expost.report") / "scripts"
    source = "".join((folder / f"{name}.js").read_text("utf-8") for name in ("words", "csv"))
    page.evaluate(f"() => {{ {source}; Object.assign(window, {{ recordsOf, FileProblem }}); }}")
    return page


def test_it_reads_what_the_library_reads_and_refuses_the_rest(reader, tmp_path):
    rng = random.Random(5)
    texts = list(dict.fromkeys(made(rng) for _ in range(CASES)))
    found = reader.evaluate(READ, [base64.b64encode(text.encode()).decode() for text in texts])
    read = 0
    for place, (text, records) in enumerate(zip(texts, found, strict=True)):
        path = tmp_path / f"{place}.csv"
        path.write_bytes(text.encode())
        try:
            shape = read_shape(path, compressed=False)
        except InvalidInput:
            # The page reads a header alone, and says that it has no rows.
            assert isinstance(records, str) or len(records) < 2, repr(text)
            continue
        assert not isinstance(records, str), (text, records)
        assert records == naive(text, shape), repr(text)
        assert len(records) - 1 == shape.records
        read += 1
    assert 0.3 * len(texts) < read < 0.9 * len(texts)
