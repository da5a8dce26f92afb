"""A query of a database: its address, its SELECT, and the column that orders the rows.

An address may contain a password, and a query the name of a person: neither is ever shown, written
or compared. Messages name a database by its scheme, host and name, and a query by its digest.
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
    """The rows of a database that a query returns.

    Parameters
    ----------
    url : str
        ``postgresql://user@host/database`` (with the password in PGPASSWORD or ~/.pgpass),
        ``sqlite:///file.db``, or the path of an SQLite file.
    sql : str
        One SELECT, or the name of a table.
    key : str
        The column that orders the rows: never missing, and different in each row.

    Raises
    ------
    InvalidInput
        If the address or the query is not valid, or there is no key.
    """

    url: str = field(repr=False)
    sql: str = field(repr=False)
    key: str | None = None

    def __post_init__(self) -> None:
        _ = self.label, self.statement
        if not self.key:
            raise InvalidInput(
                f"{self.label}: the rows of a database have no order; name the column that"
                " identifies them (--id, id_column=)."
            )

    @property
    def kind(self) -> Literal["postgresql", "sqlite"]:
        """The type of the database."""
        scheme = _scheme(self.url)
        return "postgresql" if scheme in _POSTGRES else "sqlite"

    @property
    def path(self) -> Path:
        """The file of an SQLite database."""
        return Path(self.url.removeprefix(_SQLITE))

    @property
    def name(self) -> str:
        """The database without the user: scheme, host and name, or its file."""
        if self.kind == "sqlite":
            return str(self.path)
        return _postgres_name(self.url)

    @property
    def label(self) -> str:
        """The database, and the digest of the query."""
        return f"{self.name} ({self._digest})"

    @property
    def title(self) -> str:
        """The label without the folder of a file."""
        name = self.path.name if self.kind == "sqlite" else self.name
        return f"{name} ({self._digest})"

    @property
    def _digest(self) -> str:
        code = hashlib.sha256(self.sql.encode("utf-8", "surrogatepass")).hexdigest()
        return f"query {code[:12]}"

    @property
    def statement(self) -> str:
        """The SELECT; the name of a table means all its rows."""
        sql = self.sql.strip().removesuffix(";").rstrip()
        if not sql:
            raise InvalidInput(f"{self.name}: the query is empty; give one SELECT, or a table.")
        if ";" in sql:
            raise InvalidInput(
                f"{self.label}: the query holds a semicolon: must be one SELECT (write a semicolon"
                " inside a string as chr(59), in SQLite char(59))."
            )
        if "\0" in sql:
            raise InvalidInput(f"{self.name}: the query holds a NUL; give one SELECT, or a table.")
        return f"SELECT * FROM {sql}" if _TABLE.fullmatch(sql) else sql


def query_of(source: Any, sql: str | None, key: str | None) -> Any:
    """Return ``source``, or the :class:`Query` of an address."""
    if isinstance(source, Query):
        if sql is not None:
            raise InvalidInput("query: the source has one already; leave it out.")
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
            f"{name}: is a database; select rows with one SELECT or the name of a table"
            " (--query, query=)."
        )
    if not database:
        raise InvalidInput(
            "query: only a database has one: postgresql://host/database, sqlite:///file.db or the"
            " path of an SQLite file."
        )
    return Query(url=str(source), sql=sql, key=key)


def _scheme(address: str) -> str | None:
    match = _SCHEME.match(address)
    return None if match is None else match.group(1).lower()


def _is_sqlite(path: Path) -> bool:
    """Return whether the first bytes are SQLite's; False for a file that cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(SQLITE_MARK)) == SQLITE_MARK
    except (OSError, ValueError):
        return False


def _postgres_name(url: str) -> str:
    """Return the scheme, host and database of an address.

    A password with an unquoted / ? # or @ would be a part of them, so any doubt is an error.
    """
    problem = InvalidInput(
        "postgresql://…: is not an address; write postgresql://user@host:port/database, with"
        " everything but letters and digits percent-encoded."
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
