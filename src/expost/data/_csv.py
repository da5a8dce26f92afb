"""CSV files: their structure, checked while they are read for the first time, and their cells.

Arrow's reader repairs silently: it accepts quotes within a cell, skips blank lines and ignores the
end of a cut gzip file. So this module reads the header itself and checks every chunk of a few
megabytes before it hands it to that reader: a file that passes can be read in one way only. Later
passes compare the file's size and time of change, and do not check again.

The rules are those of RFC 4180: UTF-8 (a byte order mark is skipped), one delimiter, one kind of
line end, every record as wide as the header, a quote only around a whole cell and doubled within
it. Blank lines are allowed at the end only.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from expost.data._feeds import no_columns
from expost.errors import InvalidInput

__all__ = ["DELIMITERS", "LONGEST_RECORD", "CsvShape", "csv_batches", "read_shape"]

# A longer record is nearly always a quote that never closes.
LONGEST_RECORD = 2_000_000
DELIMITERS = (",", ";", "\t", "|")

# Bytes that are read at a time: more of a wide table, of which few rows would be read.
_CHUNK, _LARGEST_CHUNK, _CHUNK_A_COLUMN = 2**22, 2**24, 2**13
_QUOTE = ord('"')
_LF, _CR = 10, 13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Of .xlsx, which is a ZIP archive, and of .xls.
_EXCEL_MARKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_UNTIL_LINE_END = re.compile(rb'(?:[^"\r\n]++|"[^"]*")*+')
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, kw_only=True)
class CsvShape:
    """The structure of a CSV file, which determines how it is read."""

    names: tuple[str, ...]
    delimiter: str
    newline: str
    compressed: bool


def read_shape(path: Path, *, compressed: bool, delimiter: str | None = None) -> CsvShape:
    """Read the header of ``path`` and check it.

    Raises
    ------
    InvalidInput
        With the file and its first line; the content of the line is never shown.
    """
    with _opened(path, compressed) as stream:
        head, newline, _ = _header(path, _chunks(path, stream))
    text = _decoded(path, head, line=1)
    delimiter = _delimiter(path, text) if delimiter is None else delimiter
    names = tuple(cell.strip() for cell in _cells(path, text, delimiter))
    if "\n" in text or "\r" in text:
        raise InvalidInput(f"{path}, line 1: a column name holds a line end; rename it.")
    checker = _RecordChecker(path=path, width=len(names), delimiter=delimiter, newline=newline)
    # The quotes of the header are checked like those of any other record.
    checker.check(head + newline, first_line=1)
    return CsvShape(
        names=names, delimiter=delimiter, newline=newline.decode(), compressed=compressed
    )


def csv_batches(
    path: Path, shape: CsvShape, indices: Sequence[int], *, check: bool
) -> Iterator[Any]:
    """Yield record batches of strings, one for each chunk, of the columns of these ``indices``.

    ``check``: whether the structure is checked, in the same pass. A file without rows is refused.

    Raises
    ------
    InvalidInput
        With the file and the line of the first fault; the content of the line is never shown.
    """
    newline = shape.newline.encode()
    checker = _RecordChecker(
        path=path, width=len(shape.names), delimiter=shape.delimiter, newline=newline
    )
    parser = _Parser(shape, indices)
    blank, records = 0, 0
    size = max(_CHUNK, min(_LARGEST_CHUNK, _CHUNK_A_COLUMN * len(shape.names)))
    with _opened(path, shape.compressed) as stream:
        _, _, rest = _header(path, _chunks(path, stream, size))
        for line, content in checker.complete(rest):
            if check:
                count, blank_here, after = checker.check(content, first_line=line)
                if (blank and count) or after:
                    raise InvalidInput(
                        f"{path}, line {blank or blank_here}: is blank: must be a row; delete it."
                    )
                blank = blank or blank_here
                records += count
            # Blank lines are at the end.
            if content.strip(b"\r\n"):
                yield from parser.batches(path, content)
    if check and records == 0:
        raise InvalidInput(f"{path}: has a header and no rows: must have at least one.")


class _Parser:
    """Arrow's reader of a chunk of complete records, with all its settings."""

    def __init__(self, shape: CsvShape, indices: Sequence[int]) -> None:
        self._names = [f"c{index}" for index in range(len(shape.names))]
        self._counted = not indices
        wanted = [f"c{index}" for index in indices] or ["c0"]
        self._parse = pa.csv.ParseOptions(
            delimiter=shape.delimiter,
            quote_char='"',
            double_quote=True,
            escape_char=False,
            newlines_in_values=True,
            ignore_empty_lines=True,
        )
        self._convert = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[],
            strings_can_be_null=False,
            quoted_strings_can_be_null=False,
        )

    def batches(self, path: Path, content: bytes) -> list[Any]:
        """Return the cells of a chunk."""
        # One block: the chunk is not divided again.
        read = pa.csv.ReadOptions(
            column_names=self._names, block_size=len(content) + 1, use_threads=False
        )
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(content),
                read_options=read,
                parse_options=self._parse,
                convert_options=self._convert,
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            # A file that was checked, and changed.
            raise InvalidInput(
                f"{path}: could not be read to its end; check the file, or write it again."
            ) from None
        batches: list[Any] = table.to_batches()
        return [no_columns(table.num_rows)] if self._counted else batches


def _opened(path: Path, compressed: bool) -> BinaryIO:
    try:
        return cast(BinaryIO, gzip.open(path, "rb")) if compressed else path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def _chunks(path: Path, stream: BinaryIO, size: int = _CHUNK) -> Iterator[bytes]:
    """Yield the bytes of the file; gzip checks its checksum at the end."""
    while True:
        try:
            chunk = stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise InvalidInput(
                f"{path}: the gzip file is damaged or cut short; copy or compress it again."
            ) from None
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None
        if not chunk:
            return
        yield chunk


def _header(path: Path, chunks: Iterator[bytes]) -> tuple[bytes, bytes, Iterator[bytes]]:
    """Return the first record without its line end, the line end, and the chunks after it."""
    content = b""
    for chunk in chunks:
        content += chunk
        if len(content) > LONGEST_RECORD:
            break
    if content.startswith(_OTHER_MARKS):
        raise InvalidInput(f"{path}: is UTF-16: must be UTF-8; save it again as UTF-8.")
    if content.startswith(_EXCEL_MARKS):
        raise InvalidInput(f"{path}: is an Excel file or an archive; save the table as CSV.")
    content = content.removeprefix(_BYTE_ORDER_MARK)
    if not content.strip():
        raise InvalidInput(f"{path}: is empty: must have a header line and at least one row.")
    match = _UNTIL_LINE_END.match(content)
    end = match.end() if match else 0
    if end > LONGEST_RECORD or content[end : end + 1] == b'"':
        raise InvalidInput(f"{path}, line 1: a quote is opened and never closed.")
    crlf = content[end : end + 2] == b"\r\n"
    newline = b"\r\n" if crlf else content[end : end + 1] or b"\n"
    if end == 0:
        raise InvalidInput(f"{path}, line 1: is blank: must be the header.")

    def rest() -> Iterator[bytes]:
        yield content[end + len(newline) :]
        yield from chunks

    return content[:end], newline, rest()


def _delimiter(path: Path, header: str) -> str:
    """Return the most frequent delimiter of the header, outside quotes."""
    bare = _QUOTED.sub("", header)
    counts = {mark: bare.count(mark) for mark in DELIMITERS}
    most = max(counts.values())
    best = [mark for mark in DELIMITERS if counts[mark] == most]
    if most == 0:
        return ","
    if len(best) > 1:
        raise InvalidInput(
            f"{path}, line 1: the delimiter may be any of {', '.join(map(repr, best))}: name it"
            " with delimiter=…"
        )
    return best[0]


def _cells(path: Path, header: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([header], delimiter=delimiter, strict=True))
    except csv.Error:
        raise InvalidInput(f"{path}, line 1: the header is not valid CSV.") from None


@dataclass(frozen=True, kw_only=True)
class _RecordChecker:
    """A check of the records of a file whose header is known."""

    path: Path
    width: int
    delimiter: str
    newline: bytes

    def complete(self, chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the number of its first line and the complete records of each chunk in turn."""
        rest, line = b"", 2
        for chunk in chunks:
            content = rest + chunk
            cut = self._cut(content)
            if len(content) - cut > LONGEST_RECORD:
                raise self._too_long(line + _lines(content[:cut]))
            if cut:
                yield line, content[:cut]
                line += _lines(content[:cut])
            rest = content[cut:]
        if rest:
            yield line, rest + self.newline

    def _cut(self, content: bytes) -> int:
        """Return where the last complete record ends, after a line end outside quotes."""
        if b'"' not in content:
            return content.rfind(self.newline[-1:]) + 1
        array = np.frombuffer(content, dtype=np.uint8)
        ends = np.flatnonzero((array == self.newline[-1]) & ~_inside(array))
        return int(ends[-1]) + 1 if ends.size else 0

    def check(self, content: bytes, *, first_line: int) -> tuple[int, int, bool]:
        """Check complete records.

        Return the number of records that are not blank, the line of the first blank one (0: none),
        and whether another record follows that one.
        """
        _decoded(self.path, content, line=first_line)
        array = np.frombuffer(content, dtype=np.uint8)
        inside = _inside(array) if b'"' in content else None

        def outside(mark: int) -> NDArray[np.bool_]:
            marks: NDArray[np.bool_] = np.equal(array, mark)
            return marks if inside is None else marks & ~inside

        def line(position: int) -> int:
            return first_line + _lines(content[:position])

        if b"\0" in content:
            raise self._fault(line(content.index(b"\0")), "holds a NUL byte: not a text file")
        if not self._has_one_line_end(content):
            self._check_line_ends(array, outside, line)
        if inside is not None:
            self._check_quotes(array, inside, line)
        ends = np.flatnonzero(outside(self.newline[-1]))
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts - (len(self.newline) - 1)
        if np.any(lengths > LONGEST_RECORD):
            raise self._too_long(line(int(starts[np.argmax(lengths > LONGEST_RECORD)])))
        blank = lengths == 0
        first_blank = int(np.argmax(blank)) if blank.any() else len(ends)
        commas = np.flatnonzero(outside(ord(self.delimiter)))
        cells = np.diff(np.searchsorted(commas, ends), prepend=0) + 1
        wrong = np.flatnonzero((cells != self.width) & ~blank)
        if wrong.size and wrong[0] < first_blank:
            record = int(wrong[0])
            raise self._fault(
                line(int(starts[record])),
                f"has {cells[record]} cell(s) where the header has {self.width}",
            )
        # A blank line in a table of one column could be a row with a missing cell.
        follows = bool(np.any(~blank[first_blank:])) or (self.width == 1 and bool(blank.any()))
        blank_line = line(int(starts[first_blank])) if blank.any() else 0
        return int(np.count_nonzero(~blank)), blank_line, follows

    def _has_one_line_end(self, content: bytes) -> bool:
        """Return whether all line ends are of one kind, also within quotes."""
        if self.newline == b"\r\n":
            return content.count(b"\r\n") == content.count(b"\r") == content.count(b"\n")
        return (b"\r" if self.newline == b"\n" else b"\n") not in content

    def _check_line_ends(
        self,
        array: NDArray[np.uint8],
        outside: Callable[[int], NDArray[np.bool_]],
        line: Callable[[int], int],
    ) -> None:
        """Raise unless all line ends outside quotes are of one kind."""
        if self.newline == b"\r\n":
            mixed = (outside(_CR) & (np.append(array[1:], 0) != _LF)) | (
                outside(_LF) & (np.append(0, array[:-1]) != _CR)
            )
        else:
            mixed = outside(_CR if self.newline == b"\n" else _LF)
        if mixed.any():
            raise self._fault(
                line(int(np.argmax(mixed))),
                "ends differently from line 1: all line ends must be of one kind",
            )

    def _check_quotes(
        self, array: NDArray[np.uint8], inside: NDArray[np.bool_], line: Callable[[int], int]
    ) -> None:
        """Raise unless quotes enclose whole cells, and are closed."""
        quotes = np.flatnonzero(array == _QUOTE)
        border = np.zeros(256, dtype=bool)
        border[[ord(self.delimiter), _QUOTE, *self.newline]] = True
        opening = inside[quotes]
        before = border[array[np.maximum(quotes - 1, 0)]] | (quotes == 0)
        after = border[array[np.minimum(quotes + 1, len(array) - 1)]]
        stray = quotes[np.where(opening, ~before, ~after)]
        if stray.size:
            raise self._fault(
                line(int(stray[0])),
                "has a quote within a cell: quotes must enclose a whole cell, and be doubled in it",
            )
        if inside[-1]:
            raise self._fault(line(int(quotes[-1])), "a quote is opened and never closed")

    def _fault(self, line: int, problem: str) -> InvalidInput:
        return InvalidInput(f"{self.path}, line {line}: {problem}.")

    def _too_long(self, line: int) -> InvalidInput:
        return self._fault(
            line, f"is longer than {LONGEST_RECORD:,} bytes (is a quote opened and never closed?)"
        )


def _inside(array: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether each byte is inside quotes (an opening quote is, a closing one is not).

    A byte is inside after an odd number of quotes; a doubled quote leaves and re-enters. A count in
    uint8 wraps at 256, which keeps its parity.
    """
    quotes: NDArray[np.bool_] = np.equal(array, _QUOTE)
    if quotes.any():
        odd: NDArray[np.bool_] = np.not_equal(np.cumsum(quotes, dtype=np.uint8) & 1, 0)
        return odd
    return quotes


def _lines(content: bytes) -> int:
    """Return the number of line ends in ``content``, also within quoted cells."""
    if b"\r" not in content:
        return content.count(b"\n")
    return content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")


def _decoded(path: Path, content: bytes, *, line: int) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        fault_line = line + _lines(content[: error.start])
        raise InvalidInput(
            f"{path}, line {fault_line}: is not UTF-8; save the file again as UTF-8."
        ) from None
