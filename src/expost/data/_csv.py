"""The structure of a CSV file, checked before DuckDB sees it.

DuckDB repairs silently: it drops a trailing delimiter, skips blank lines, renames equal columns,
takes off spaces around a quoted cell and ignores the checksum of a gzip file. So this module reads
the header itself and then walks the whole file once, a few megabytes at a time: a file that passes
has one reading only.

The rules are those of RFC 4180: UTF-8 (a byte order mark is skipped), one delimiter, one kind of
line end, every record as wide as the header, a quote only around a whole cell and doubled within
it. Blank lines may stand at the end and nowhere else.
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
    """What a CSV file is made of: enough for one reading of it."""

    names: tuple[str, ...]
    delimiter: str
    newline: str
    compressed: bool
    records: int


def read_shape(path: Path, *, compressed: bool, delimiter: str | None = None) -> CsvShape:
    """Read the header of ``path`` and check every record against it.

    Raises :class:`InvalidInput` that names the file and the line of the first fault; the content
    of the line is never shown.
    """
    with _opened(path, compressed) as stream:
        head, newline, rest = _header(path, _chunks(path, stream))
        text = _decoded(path, head, line=1)
        delimiter = _delimiter(path, text) if delimiter is None else delimiter
        names = tuple(cell.strip() for cell in _cells(path, text, delimiter))
        if "\n" in text or "\r" in text:
            # DuckDB takes the first line end, quoted or not, for the kind of them all.
            raise InvalidInput(f"{path}, line 1: a column name holds a line end; rename it.")
        walk = _Walk(path=path, width=len(names), delimiter=delimiter, newline=newline)
        # The header's quotes are checked like any other record's.
        walk.take(head + newline, first_line=1)
        records = walk.all(rest, first_line=1 + _lines(head + newline))
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
    """The bytes of the file; gzip checks its own checksum at the end."""
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
    """The first record without its line end, the line end, and the chunks after it."""
    content = b""
    for chunk in chunks:
        content += chunk
        if len(content) > LONGEST_RECORD:
            break
    if content.startswith(_OTHER_MARKS):
        raise InvalidInput(f"{path}: is UTF-16 text: must be UTF-8; save it again as UTF-8.")
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
    """The delimiter that the header uses most, outside quotes."""
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
class _Walk:
    """One pass over the records of a file whose header is known."""

    path: Path
    width: int
    delimiter: str
    newline: bytes

    def all(self, chunks: Iterator[bytes], *, first_line: int) -> int:
        """Check every record; return how many there are."""
        carry, line, records, blank = b"", first_line, 0, 0
        for chunk in chunks:
            whole, carry = self._split(carry + chunk, line)
            records, blank = self._tally(whole, line, records, blank)
            line += _lines(whole)
        if carry:
            records, blank = self._tally(carry + self.newline, line, records, blank)
        if records == 0:
            raise InvalidInput(f"{self.path}: has a header and no rows: must have at least one.")
        return records

    def _tally(self, whole: bytes, line: int, records: int, blank: int) -> tuple[int, int]:
        """Add a buffer of whole records; ``blank`` is the line of the first blank one, or 0."""
        if not whole:
            return records, blank
        found, blank_here, after = self.take(whole, first_line=line)
        if (blank and found) or after:
            raise InvalidInput(
                f"{self.path}, line {blank or blank_here}: is blank: must be a row; delete it."
            )
        return records + found, blank or blank_here

    def _split(self, content: bytes, line: int) -> tuple[bytes, bytes]:
        """(whole records, the start of the next one): the cut is at a line end outside quotes."""
        array = np.frombuffer(content, dtype=np.uint8)
        ends = np.flatnonzero((array == self.newline[-1]) & ~_inside(array))
        cut = int(ends[-1]) + 1 if ends.size else 0
        if len(content) - cut > LONGEST_RECORD:
            raise self._too_long(line + _lines(content[:cut]))
        return content[:cut], content[cut:]

    def take(self, whole: bytes, *, first_line: int) -> tuple[int, int, bool]:
        """Check whole records.

        Returns how many are not blank, the line of the first blank one (0: none), and whether
        another record follows that one.
        """
        _decoded(self.path, whole, line=first_line)
        array = np.frombuffer(whole, dtype=np.uint8)
        inside = _inside(array)

        def line(position: int) -> int:
            return first_line + _lines(whole[:position])

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
        at = line(int(starts[first_blank])) if blank.any() else 0
        return int(np.count_nonzero(~blank)), at, follows

    def _check_bytes(
        self, array: NDArray[np.uint8], inside: NDArray[np.bool_], line: Callable[[int], int]
    ) -> None:
        """Quotes stand around whole cells, line ends are of one kind, and no byte is NUL."""
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

    def _fault(self, line: int, what: str) -> InvalidInput:
        return InvalidInput(f"{self.path}, line {line}: {what}.")

    def _too_long(self, line: int) -> InvalidInput:
        return self._fault(
            line, f"is longer than {LONGEST_RECORD:,} bytes (is a quote opened and never closed?)"
        )


def _inside(array: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether each byte is inside quotes (an opening quote is, a closing one is not).

    Inside is where an odd number of quotes has been passed; a doubled quote leaves and re-enters.
    A count in uint8 wraps at 256, which keeps its parity.
    """
    quotes: NDArray[np.bool_] = np.equal(array, _QUOTE)
    if quotes.any():
        odd: NDArray[np.bool_] = np.not_equal(np.cumsum(quotes, dtype=np.uint8) & 1, 0)
        return odd
    return quotes


def _lines(content: bytes) -> int:
    """How many line ends ``content`` holds, those within quoted cells included."""
    return content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")


def _decoded(path: Path, content: bytes, *, line: int) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        at = line + _lines(content[: error.start])
        raise InvalidInput(
            f"{path}, line {at}: is not UTF-8 text; save the file again as UTF-8."
        ) from None
