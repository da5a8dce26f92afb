"""What is asked of a database: where it is, which rows, and the column that orders them.

An address may hold a password, and a query somebody's name: neither is ever shown, written or
compared. A database is called by its scheme, host and name, a query by its digest.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from expost.errors import InvalidInput

__all__ = ["SQLITE_MARK", "Query", "query_of"]

SQLITE_MARK = b"SQLite format 3\0"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_POSTGRES = ("postgresql", "postgres")
_SQLITE = "sqlite:///"
_HOST = re.compile(r"([^\s:/@\[\],]*|\[[0-9A-Fa-f:.%]+\])(:[0-9]*)?")
_DATABASE = re.compile(r"[^\s?#@]*")
_TABLE = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)?")


@dataclass(frozen=True, kw_only=True)
class Query:
    """Rows of a database.

    ``url``  ``postgresql://user@host/database`` (a password rather in PGPASSWORD or ~/.pgpass),
             ``sqlite:///file.db``, or the path of an SQLite file.
    ``sql``  one SELECT, or the name of a table.
    ``key``  the column that orders the rows: present, and different in each.
    """

    url: str = field(repr=False)
    sql: str = field(repr=False)
    key: str | None = None

    def __post_init__(self) -> None:
        _ = self.label, self.statement
        if not self.key:
            raise InvalidInput(
                f"{self.label}: the rows of a database have no order of their own; name the column"
                " that keys them (--id, id_column=)."
            )

    @property
    def kind(self) -> Literal["postgresql", "sqlite"]:
        """Which database it is."""
        scheme = _scheme(self.url)
        return "postgresql" if scheme in _POSTGRES else "sqlite"

    @property
    def path(self) -> Path:
        """The file of an SQLite database."""
        return Path(self.url.removeprefix(_SQLITE))

    @property
    def name(self) -> str:
        """The database without who asks it: scheme, host and name, or its file."""
        if self.kind == "sqlite":
            return str(self.path)
        return _postgres_name(self.url)

    @property
    def label(self) -> str:
        """The database, and the digest of the query."""
        return f"{self.name} ({self._digest})"

    @property
    def title(self) -> str:
        """The same for a reader who need not know where a file lies."""
        name = self.path.name if self.kind == "sqlite" else self.name
        return f"{name} ({self._digest})"

    @property
    def _digest(self) -> str:
        code = hashlib.sha256(self.sql.encode("utf-8", "surrogatepass")).hexdigest()
        return f"query {code[:12]}"

    @property
    def statement(self) -> str:
        """The one SELECT; a name stands for all of its table."""
        text = self.sql.strip()
        text = text.removesuffix(";").rstrip()
        if not text:
            raise InvalidInput(f"{self.name}: the query is empty; give one SELECT, or a table.")
        if ";" in text:
            raise InvalidInput(
                f"{self.label}: the query holds a semicolon: must be one SELECT (write a semicolon"
                " inside a text as chr(59), in SQLite char(59))."
            )
        if "\0" in text:
            raise InvalidInput(f"{self.name}: the query holds a NUL; give one SELECT, or a table.")
        return f"SELECT * FROM {text}" if _TABLE.fullmatch(text) else text


def query_of(source: Any, sql: str | None, key: str | None) -> Any:
    """``source``, or the :class:`Query` that it is the address of."""
    if isinstance(source, Query):
        if sql is not None:
            raise InvalidInput("query: is in the source already; leave it out.")
        return source
    scheme = _scheme(source) if isinstance(source, str) else None
    if scheme is not None and scheme not in (*_POSTGRES, "sqlite"):
        raise InvalidInput(
            f"{scheme}://: cannot be read; give a file, postgresql://host/database or"
            " sqlite:///file.db."
        )
    database = scheme is not None or (isinstance(source, str | Path) and _is_sqlite(Path(source)))
    if sql is None:
        if not database:
            return source
        name = _postgres_name(str(source)) if scheme in _POSTGRES else str(source)
        raise InvalidInput(
            f"{name}: is a database; say which rows with one SELECT or the name of a table"
            " (--query, query=)."
        )
    if not database:
        raise InvalidInput(
            "query: only a database has one: postgresql://host/database, sqlite:///file.db or the"
            " path of an SQLite file."
        )
    return Query(url=str(source), sql=sql, key=key)


def _scheme(text: str) -> str | None:
    found = _SCHEME.match(text)
    return None if found is None else found.group(1).lower()


def _is_sqlite(path: Path) -> bool:
    """Whether the first bytes are SQLite's; what cannot be read is told where it is read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(SQLITE_MARK)) == SQLITE_MARK
    except (OSError, ValueError):
        return False


def _postgres_name(url: str) -> str:
    """Scheme, host and database.

    A password with an unquoted / ? # or @ would be taken for one of them, so any doubt is an error.
    """
    problem = InvalidInput(
        "postgresql://…: is not an address; write postgresql://user@host:port/database, with"
        " everything else than letters and digits percent-encoded."
    )
    try:
        parts = urlsplit(url)
    except ValueError:
        raise problem from None
    user, _, hosts = parts.netloc.rpartition("@")
    database = parts.path.removeprefix("/")
    if (
        "@" in user
        or "@" in parts.path + parts.query + parts.fragment
        or parts.fragment
        or not all(map(_HOST.fullmatch, hosts.split(",")))
        or not _DATABASE.fullmatch(database)
        or not url.isprintable()
    ):
        raise problem
    return f"postgresql://{hosts}/{database}"
