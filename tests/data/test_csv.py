"""The CSV reader: one clear error for each broken file, and no silent repair for any other.

The reference is Python's csv module: whatever the reader accepts must be what csv reads.
"""

import csv
import gzip
import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expost.data import _csv, open_table
from expost.errors import InvalidInput

CANARY = "zq7canary"


def written(folder: Path, content: bytes | str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def naive(text: str, delimiter: str = ",") -> list[list[str | None]]:
    """Every record after the header, stripped, empty as None: the obviously right reading."""
    records = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))[1:]
    while records and not records[-1]:
        records.pop()
    return [[cell.strip(" ") or None for cell in record] for record in records]


def rows_of(source: object, **options: object) -> list[list[object]]:
    table = open_table(source, **options)
    texts = table.retyped(dict.fromkeys(table.names, "text"))
    return [list(row.values()) for block in texts.blocks(3) for row in block.to_pylist()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"a,b", "no rows"),
        (b"a,b\n", "no rows"),
        (b"a,b\n\n\n", "no rows"),
        (b"\na,b\n1,2\n", "line 1: is blank"),
        (b"a,b\n1,2\nzq7canary\n", r"line 3: has 1 cell\(s\) where the header has 2"),
        (b"a,b\n1,2\n3,zq7canary,\n", r"line 3: has 3 cell\(s\) where the header has 2"),
        (b"a,b\n1,2\n3,4,zq7canary\n", "line 3: has 3"),
        (b"a,b\n1,2\n\n3,4\n", "line 3: is blank"),
        (b"a\n1\n\n2\n", "line 3: is blank"),
        (b'a,b\n1,"zq7canary\n3,4\n', "line 2: a quote is opened"),
        (b'a,b\n1,2\n3,"', "line 3: a quote is opened"),
        (b'a,"b\n1,2\n', "line 1: a quote is opened"),
        (b'a,b\n1,zq7"canary\n', "line 2: has a quote within a cell"),
        (b'a,b\n1,"zq7"canary\n', "line 2: has a quote within"),
        (b'a,b\n1, "zq7canary"\n', "line 2: has a quote within"),
        (b'a,"b" \n1,2\n', "line 1: (has a quote within|the header)"),
        (b'"a\nb",c\n1,2\n', "line 1: a column name holds a line end"),
        (b"a,b\n1,2\r\n3,4\n", "line 2: ends differently"),
        (b"a,b\r\n1,2\n3,4\r\n", "line 2: ends differently"),
        (b"a,b\n1,2\r3,4\n", "line 2: ends differently"),
        (b"a,b\r1,2\n3,4\r", "line 2: ends differently"),
        (b"a,b\n1,zq7canary\x00\n", "line 2: holds a NUL"),
        (b"a,b\n1,2\n3,zq7canary\xff\n", "line 3: is not UTF-8"),
        (b"a,\xff\n1,2\n", "line 1: is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04\x00\xff\x80\n1", "is an Excel file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "is an Excel file"),
        (b"a,b,a\n1,2,3\n", "columns 1 and 3 have the same name"),
        (b"a,b,A\n1,2,3\n", "columns 1 and 3 have the same name"),
        (b"a,,b\n1,2,3\n", "column 2 has no name"),
        (b"a, ,b\n1,2,3\n", "column 2 has no name"),
        (b",,b\n1,2,3\n", "column 2 has no name"),
        (b'""\n1\n', "column 1 has no name"),
        (b"a,b\x07\n1,2\n", "control character"),
        (b"a,b;c\n1,2;3\n", "the delimiter may be any of"),
        (b"a,b\n" + b"x" * (_csv.LONGEST_RECORD + 5) + b",1\n", "line 2: is longer than"),
        (b'a,b\n1,2\n"' + b"x\n" * 1_500_000, "line 3: (is longer than|a quote is opened)"),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(InvalidInput, match=message) as caught:
        open_table(path)
    assert str(path) in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("header", [b",a,b", b'"",a,b', b" ,a,b"])
def test_row_names_of_pandas_and_r_are_left_out(tmp_path, header):
    """A first column without a name; the other columns keep their cells, in every pass."""
    table = open_table(written(tmp_path, header + b"\nr1,1,x\nr2,2.5,y\n"))
    assert table.names == ("a", "b")
    assert [column.kind for column in table.columns] == ["numeric", "text"]
    assert "has no name and was left out" in " ".join(table.notices)
    assert table.levels(["b"], at_most=5) == {"b": ("x", "y")}
    (block,) = [batch.to_pydict() for batch in table.map(lambda batch: batch, ["b", "a"])]
    assert [*block.values()] == [["x", "y"], [1.0, 2.5]]
    kept = table.kept(np.array([1]), "one row was left out.")
    assert (kept.rows, len(kept.notices)) == (1, 2)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match="no such file"):
        open_table(tmp_path / "absent.csv")
    with pytest.raises(InvalidInput, match="is a folder"):
        open_table(tmp_path)
    with pytest.raises(InvalidInput, match="no file matches"):
        open_table(str(tmp_path / "*.csv"))
    with pytest.raises(InvalidInput, match=r"not a file name|no such file"):
        open_table("a\0b")
    with pytest.raises(InvalidInput, match=r"not a file name|no such file"):
        open_table("x" * 5000)
    with pytest.raises(InvalidInput, match=r"^https://: cannot be read"):
        open_table("https://example.org/table.csv")
    with pytest.raises(InvalidInput, match="not a regular file"):
        open_table("/dev/null")


def test_an_unreadable_file(tmp_path, monkeypatch):
    path = written(tmp_path, "a,b\n1,2\n")

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        raise PermissionError(13, "Permission denied")

    # chmod does not stop the superuser, who often runs tests.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InvalidInput, match=r"cannot be read \(Permission denied\)"):
        open_table(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_dialects(tmp_path, delimiter, newline, mark):
    lines = ['a§"x, y; z|"§b', "1§é§2", '3§"q ""r"", ;\t|"§4', '5§"two\nlines"§', "§§"]
    text = newline.join(line.replace("§", delimiter) for line in lines)
    expected = naive(text, delimiter)
    text = mark + text
    path = written(tmp_path, text)
    assert rows_of(path) == expected
    assert len(expected) == 4
    assert rows_of(written(tmp_path, text + newline)) == expected
    assert rows_of(written(tmp_path, text + newline * 3)) == expected
    assert rows_of(path, delimiter=delimiter) == expected


def test_a_single_column_and_trailing_blank_lines(tmp_path):
    assert rows_of(written(tmp_path, "a\n1\n2")) == [["1"], ["2"]]
    with pytest.raises(InvalidInput, match="line 4: is blank"):
        open_table(written(tmp_path, "a\n1\n2\n\n"))


def test_an_ambiguous_delimiter_can_be_named(tmp_path):
    path = written(tmp_path, "a,b;c\n1,2;3\n")
    assert open_table(path, delimiter=",").names == ("a", "b;c")
    with pytest.raises(InvalidInput, match="delimiter"):
        open_table(path, delimiter="x")


@pytest.mark.parametrize("name", ["a'b.csv", "q?.csv", "[1].csv", "s*.csv", "ü b\\c.csv", "-"])
def test_awkward_file_names(tmp_path, name):
    written(tmp_path, "a,b\n9,9\n", "q1.csv")
    written(tmp_path, "a,b\n9,9\n", "1.csv")
    written(tmp_path, "a,b\n9,9\n", "sx.csv")
    assert rows_of(written(tmp_path, "a,b\n1,2\n", name)) == [["1", "2"]]


def test_gzip(tmp_path):
    text = "a,b\n" + "".join(f"{i},{i * i}\n" for i in range(20_000))
    whole = gzip.compress(text.encode())
    assert rows_of(written(tmp_path, whole, "t.csv.gz")) == naive(text)
    # The first bytes tell, not the name; members may follow one another.
    halves = gzip.compress(text[:70].encode()) + gzip.compress(text[70:].encode())
    assert len(rows_of(written(tmp_path, halves, "t.csv"))) == 20_000
    flipped = bytearray(whole)
    flipped[-6] ^= 1
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 255
    for damaged in (whole[:-3], whole[: len(whole) // 2], flipped, middle, whole + b"more"):
        with pytest.raises(InvalidInput, match="gzip file is damaged"):
            open_table(written(tmp_path, bytes(damaged), "d.csv.gz"))


def test_globs_are_read_in_the_order_of_their_names(tmp_path):
    for name, first in (("b.csv", 3), ("a.csv", 1), ("c.csv", 5)):
        written(tmp_path, f"k,t\n{first},x\n{first + 1},y\n", name)
    table = open_table(str(tmp_path / "*.csv"))
    assert table.column("k").to_pylist() == [1, 2, 3, 4, 5, 6]
    written(tmp_path, "k,u\n7,x\n", "d.csv")
    with pytest.raises(InvalidInput, match=r"d\.csv: differs from .*a\.csv"):
        open_table(str(tmp_path / "*.csv"))


def test_order_and_content_of_many_rows_with_quoted_line_ends(tmp_path):
    """Large enough for several of our chunks and blocks."""
    pieces = ["x", "\n", '"', ",", "y\r\n", "é", "\r", ""]
    rows = [
        [str(i), "".join(pieces[(i * k) % 8] for k in (1, 3, 5, 7)), "z" * 40]
        for i in range(120_000)
    ]
    path = tmp_path / "many.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
            [["key", "text", "pad"], *rows]
        )
    table = open_table(path)
    assert table.rows == len(rows)
    assert table.column("key").to_pylist() == [float(row[0]) for row in rows]
    expected = [row[1].strip(" ") or None for row in rows]
    assert table.column("text").to_pylist() == expected


def test_a_file_that_changes_is_noticed(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n3,4\n")
    table = open_table(path)
    written(tmp_path, "a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(InvalidInput, match="changed while"):
        list(table.blocks(10))
    # The same number of rows and bytes.
    written(tmp_path, "a,b\n1,2\n3,5\n")
    os.utime(path, ns=(0, 0))
    with pytest.raises(InvalidInput, match="changed while"):
        list(table.blocks(10))
    path.unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(table.blocks(10))


slow = settings(
    max_examples=500,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@slow
@given(content=st.binary(max_size=60))
def test_random_bytes_give_a_table_or_invalid_input(tmp_path, content):
    path = written(tmp_path, content)
    try:
        table = open_table(path)
    except InvalidInput:
        return
    assert sum(block.num_rows for block in table.blocks()) == table.rows >= 1


cells = st.text(alphabet=list('ab1.e-, ;"\n\r\t#\\é?'), max_size=5)


@settings(slow, max_examples=400)
@given(
    rows=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4
        )
    ),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    damage=st.one_of(
        st.none(),
        st.tuples(st.integers(0, 80), st.sampled_from(['"', ",", "\n", "\r", "x", ""])),
    ),
)
def test_what_is_accepted_is_what_csv_reads(tmp_path, rows, newline, damage):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=newline)
    writer.writerows([[f"c{i}" for i in range(len(rows[0]))], *rows])
    text = out.getvalue()
    if damage is not None:
        at = damage[0] % len(text)
        text = text[:at] + damage[1] + text[at + 1 :]
    path = written(tmp_path, text)
    try:
        shape = _csv.read_shape(path, compressed=False)
        # Numbers and tokens are another test's: here every cell is text.
        kinds = dict.fromkeys(shape.names, "text")
        table = open_table(path, kinds=kinds)
    except InvalidInput:
        assert damage is not None
        return
    expected = naive(text, shape.delimiter)
    assert table.rows == len(expected)
    assert [list(row.values()) for b in table.blocks(2) for row in b.to_pylist()] == expected
