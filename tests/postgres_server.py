"""A PostgreSQL server for tests: its own folder, its own port, gone at the end.

Debian's postgresql is enough; where it is missing and may be installed, it is. The server refuses
to run as root, so that root starts it as the user ``postgres``.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PASSWORD = "hush-90210"
_FAST = (
    "fsync=off",
    "shared_buffers=16MB",
    "max_wal_size=64MB",
    "autovacuum=off",
    "lock_timeout=10s",
)


class PostgresMissing(UserWarning):
    """There is no PostgreSQL to test against, and none could be installed."""


@dataclass(frozen=True)
class Server:
    folder: Path
    port: int
    bin: Path

    def url(self, *, user: str = "postgres", password: str = "", database: str = "postgres") -> str:
        """Its address by the socket in its folder; only ``reader`` needs a password."""
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@/{database}?host={self.folder}&port={self.port}"

    def run(self, *statements: str) -> None:
        """Run and commit statements."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    def load(self, name: str, table) -> None:
        """Make a table of an Arrow table."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url()) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, table, mode="create")
            connection.commit()


def _as_server(*command: object) -> list[str]:
    words = list(map(str, command))
    return ["runuser", "-u", "postgres", "--", *words] if os.geteuid() == 0 else words


def _binaries() -> Path | None:
    """The newest server that is here, installed if it can be."""

    def installed() -> Path | None:
        by_version = sorted(
            Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
        )
        places = [path for path in by_version if (path / "initdb").exists()]
        other = shutil.which("initdb")
        return places[-1] if places else Path(other).parent if other else None

    folder = installed()
    if folder is None and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
        command = ["apt-get", "install", "-y", "-q", "postgresql"]
        try:
            subprocess.run(command, env=quiet, capture_output=True, timeout=300, check=False)
        except subprocess.TimeoutExpired:
            return None
        folder = installed()
    return folder


def _skip(what: str) -> None:
    """Loudly: a line among the warnings, beside the count of what was skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PostgresMissing)
        warnings.warn(f"PostgreSQL was not tested: {what}", PostgresMissing, stacklevel=3)
    pytest.skip(f"PostgreSQL was not tested: {what}")


@contextmanager
def running() -> Iterator[Server]:
    """A server that is stopped, and its folder removed, at the end."""
    try:
        import adbc_driver_postgresql  # noqa: F401 (only whether it is there)
    except ImportError:
        _skip("the package adbc-driver-postgresql is missing")
    binaries = _binaries()
    if binaries is None:
        _skip("initdb is missing (Debian: apt-get install postgresql)")
    # Short: the path of a socket may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(folder=folder, port=port, bin=binaries)
    try:
        start(server, first=True)
        server.run(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
        yield server
    finally:
        stop(server, "immediate")
        shutil.rmtree(folder, ignore_errors=True)


def start(server: Server, *, first: bool = False) -> None:
    data = server.folder / "data"
    if first:
        _call(
            server.bin / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        rules = "local all reader scram-sha-256\nlocal all all trust\n"
        (data / "pg_hba.conf").write_text(rules)
    settings = " ".join(f"-c {setting}" for setting in _FAST)
    options = f"-p {server.port} -k {server.folder} -c listen_addresses= {settings}"
    _call(
        server.bin / "pg_ctl", "-D", data, "-w", "-t", "60", "-o", options,
        "-l", server.folder / "log", "start",
    )  # fmt: skip


def stop(server: Server, mode: str) -> None:
    command = _as_server(
        server.bin / "pg_ctl", "-D", server.folder / "data", "-w", "-m", mode, "stop"
    )
    subprocess.run(command, capture_output=True, timeout=60, check=False, cwd="/")


def _call(*command: object) -> None:
    done = subprocess.run(
        _as_server(*command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=120,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
