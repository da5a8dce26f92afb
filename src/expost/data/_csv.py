"""The structure of a CSV file, checked before DuckDB sees it.

DuckDB repairs silently: it drops a trailing delimiter, skips blank lines, renames equal columns,
takes off spaces around a quoted cell and ignores the checksum of a gzip file. So this module reads
the header itself and then checks the whole file once, a few megabytes at a time: a file that passes
can be read in one way only.

The rules are those of RFC 4180: UTF-8 (a byte order mark is skipped), one delimiter, one kind of
line end, every record as wide as the header, a quote only around a whole cell and doubled within
it. Blank lines are allowed at the end only.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from expost.errors import InvalidInput

__all__ = ["LONGEST_RECORD", "CsvShape", "read_shape"]

# DuckDB holds a record in one buffer; a longer one is nearly always a quote that never closes.
LONGEST_RECORD = 2_000_000
DELIMITERS = (",", ";", "\t", "|")

_CHUNK = 2**22
_QUOTE = ord('"')
_LF, _CR = 10, 13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UNTIL_LINE_END = re.compile(rb'(?:[^"\r\n]++|"[^"]*")*+')
_QUOTED = re.compile(r'"[^"]*"')


@dataclass(frozen=True, kw_only=True)
class CsvShape:
    """The structure of a CSV file, which determines how it is read."""

    names: tuple[str, ...]
    delimiter: str
    newline: str
    compressed: bool
    records: int


def read_shape(path: Path, *, compressed: bool, delimiter: str | None = None) -> CsvShape:
    """Read the header of ``path`` and check every record against it.

    Raises
    ------
    InvalidInput
        With the file and the line of the first fault; the content of the line is never shown.
    """
    with _opened(path, compressed) as stream:
        head, newline, rest = _header(path, _chunks(path, stream))
        text = _decoded(path, head, line=1)
        delimiter = _delimiter(path, text) if delimiter is None else delimiter
        names = tuple(cell.strip() for cell in _cells(path, text, delimiter))
        if "\n" in text or "\r" in text:
            # DuckDB takes the kind of all line ends from the first one, quoted or not.
            raise InvalidInput(f"{path}, line 1: a column name holds a line end; rename it.")
        checker = _RecordChecker(path=path, width=len(names), delimiter=delimiter, newline=newline)
        # The quotes of the header are checked like those of any other record.
        checker.check(head + newline, first_line=1)
        records = checker.check_all(rest, first_line=1 + _lines(head + newline))
    return CsvShape(
        names=names,
        delimiter=delimiter,
        newline=newline.decode(),
        compressed=compressed,
        records=records,
    )


def _opened(path: Path, compressed: bool) -> BinaryIO:
    try:
        return cast(BinaryIO, gzip.open(path, "rb")) if compressed else path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror}).") from None


def _chunks(path: Path, stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of the file; gzip checks its checksum at the end."""
    while True:
        try:
            chunk = stream.read(_CHUNK)
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

    def check_all(self, chunks: Iterator[bytes], *, first_line: int) -> int:
        """Check every record; return their number."""
        rest, line, records, blank = b"", first_line, 0, 0
        for chunk in chunks:
            content, rest = self._split(rest + chunk, line)
            records, blank = self._add(content, line, records, blank)
            line += _lines(content)
        if rest:
            records, blank = self._add(rest + self.newline, line, records, blank)
        if records == 0:
            raise InvalidInput(f"{self.path}: has a header and no rows: must have at least one.")
        return records

    def _add(self, content: bytes, line: int, records: int, blank: int) -> tuple[int, int]:
        """Add complete records; ``blank`` is the line of the first blank one, or 0."""
        if not content:
            return records, blank
        count, blank_here, after = self.check(content, first_line=line)
        if (blank and count) or after:
            raise InvalidInput(
                f"{self.path}, line {blank or blank_here}: is blank: must be a row; delete it."
            )
        return records + count, blank or blank_here

    def _split(self, content: bytes, line: int) -> tuple[bytes, bytes]:
        """Split after the last line end outside quotes: (complete records, the next one)."""
        array = np.frombuffer(content, dtype=np.uint8)
        ends = np.flatnonzero((array == self.newline[-1]) & ~_inside(array))
        cut = int(ends[-1]) + 1 if ends.size else 0
        if len(content) - cut > LONGEST_RECORD:
            raise self._too_long(line + _lines(content[:cut]))
        return content[:cut], content[cut:]

    def check(self, content: bytes, *, first_line: int) -> tuple[int, int, bool]:
        """Check complete records.

        Return the number of records that are not blank, the line of the first blank one (0: none),
        and whether another record follows that one.
        """
        _decoded(self.path, content, line=first_line)
        array = np.frombuffer(content, dtype=np.uint8)
        inside = _inside(array)

        def line(position: int) -> int:
            return first_line + _lines(content[:position])

        self._check_bytes(array, inside, line)
        if inside[-1]:
            opened = np.flatnonzero(array == _QUOTE)[-1]
            raise self._fault(line(int(opened)), "a quote is opened and never closed")
        ends = np.flatnonzero((array == self.newline[-1]) & ~inside)
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts - (len(self.newline) - 1)
        if np.any(lengths > LONGEST_RECORD):
            raise self._too_long(line(int(starts[np.argmax(lengths > LONGEST_RECORD)])))
        blank = lengths == 0
        first_blank = int(np.argmax(blank)) if blank.any() else len(ends)
        commas = np.flatnonzero((array == ord(self.delimiter)) & ~inside)
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

    def _check_bytes(
        self, array: NDArray[np.uint8], inside: NDArray[np.bool_], line: Callable[[int], int]
    ) -> None:
        """Raise unless quotes enclose cells, line ends are of one kind, and no byte is NUL."""
        nul = np.flatnonzero(array == 0)
        if nul.size:
            raise self._fault(line(int(nul[0])), "holds a NUL byte: not a text file")
        returns = (array == _CR) & ~inside
        feeds = (array == _LF) & ~inside
        if self.newline == b"\r\n":
            mixed = (returns & (np.append(array[1:], 0) != _LF)) | (
                feeds & (np.append(0, array[:-1]) != _CR)
            )
        else:
            mixed = returns if self.newline == b"\n" else feeds
        if mixed.any():
            raise self._fault(
                line(int(np.argmax(mixed))),
                "ends differently from line 1: all line ends must be of one kind",
            )
        quotes = np.flatnonzero(array == _QUOTE)
        if not quotes.size:
            return
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
    return content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")


def _decoded(path: Path, content: bytes, *, line: int) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        fault_line = line + _lines(content[: error.start])
        raise InvalidInput(
            f"{path}, line {fault_line}: is not UTF-8; save the file again as UTF-8."
        ) from None
