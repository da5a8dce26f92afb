"""Tables from PostgreSQL, SQLite, Arrow files and folders are those that CSV and Parquet give."""

import csv
import gc
import os
import pickle
import re
import sqlite3
import sys
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest

from expost.data import Column, Encoding, Query, Table, UnitBall, open_table
from expost.errors import InvalidInput, MissingExtra
from expost.rows import RowStream
from postgres_server import PASSWORD, Server, running, start, stop

pytestmark = pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning")

SECRETS = (PASSWORD, "kanarie", "90210")
HOSTILE = ('a"b', "select", "é %s {x}", "c0", "key", 'q."x', "'); DROP TABLE people; --", "名前")


@pytest.fixture(scope="session")
def postgres():
    with running() as server:
        yield server


def people(rows: int = 300) -> pa.Table:
    """Numbers, decimals, text, nulls and unicode, keyed by whole numbers in their order."""
    random = np.random.default_rng(7)
    wage = np.round(random.normal(3e3, 900.0, rows), 2)
    city = random.choice(["Zürich", "東京", "O'Hara", 'a "b"', "x;y"], rows)
    return pa.table(
        {
            "number": pa.array(range(5, rows + 5), pa.int64()),
            "age": pa.array(random.integers(18, 90, rows), pa.int64()),
            "weight": pa.array(random.normal(70, 12, rows)),
            "wage": pa.array([Decimal(f"{value:.2f}") for value in wage], pa.decimal128(12, 2)),
            "city": pa.array(city.tolist()),
            "note": pa.array([None if i % 7 == 0 else f"n{i % 3}" for i in range(rows)]),
            "hours": pa.array([None if i % 5 == 0 else i / 8 for i in range(rows)], pa.float64()),
            "ill": pa.array(random.choice(["no", "yes"], rows).tolist()),
        }
    )


def shuffled(table: pa.Table) -> pa.Table:
    return table.take(np.random.default_rng(1).permutation(table.num_rows))


def as_csv(table: pa.Table, path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            writer.writerow(["" if cell is None else cell for cell in row])
    return path


def as_sqlite(table: pa.Table, path: Path, name: str = "people") -> Path:
    """Without declared types: every cell has a class of its own."""
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in table.column_names)
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {name} ({quoted})")
        cells = [
            [float(cell) if isinstance(cell, Decimal) else cell for cell in column.to_pylist()]
            for column in table.columns
        ]
        marks = ", ".join("?" * len(cells))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*cells, strict=True))
    connection.close()
    return path


def as_folder(table: pa.Table, path: Path) -> Path:
    """By thirds, in folders that say which."""
    third = -(-table.num_rows // 3)
    for part in range(3):
        folder = path / f"part={part}"
        folder.mkdir(parents=True)
        pa.parquet.write_table(table.slice(part * third, third), folder / "rows.parquet")
    return path


def read(source, **options):
    """The encoding, and what it makes of the rows."""
    table = open_table(source, id_column="number", **options)
    encoding = Encoding.read(table, target="ill")
    encoded = encoding.encode_table(table)
    return encoding.to_json(), encoded.X.tobytes(), encoded.y.tobytes(), list(encoded.ids)


def refused(*words: str, **asked) -> str:
    source = asked.pop("source")
    with pytest.raises(InvalidInput) as caught:
        open_table(source, **asked)
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert message.endswith(".")
    assert "\n" not in message
    assert not any(secret in message for secret in SECRETS), message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "people.csv"
    return read(as_csv(people(), path))


def test_files_of_every_kind_give_the_same_rows(wanted, tmp_path):
    table = people()
    pa.parquet.write_table(table, tmp_path / "people.parquet", row_group_size=70)
    pa.feather.write_feather(table, tmp_path / "people.feather", chunksize=64)
    with pa.ipc.new_file(tmp_path / "people.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    for name in ("people.parquet", "people.feather", "people.arrow"):
        assert read(tmp_path / name) == wanted
    assert read(pa.dataset.dataset(tmp_path / "people.parquet")) == wanted
    assert read(as_folder(table, tmp_path / "parts"), columns=table.column_names) == wanted
    other = table.set_column(2, "weight", pa.array(np.asarray(table["weight"]) + 1e-9))
    assert read(other) != wanted


def test_sqlite_gives_the_same_rows(wanted, tmp_path):
    path = as_sqlite(shuffled(people()), tmp_path / "pe?o#ple%20;é.db")
    assert read(path, query="people") == wanted
    assert read(f"sqlite:///{path}", query="SELECT * FROM people -- all of them") == wanted
    assert read(Query(url=str(path), sql="people;", key="number")) == wanted


def test_postgresql_gives_the_same_rows(postgres, wanted):
    postgres.load("people", shuffled(people()))
    postgres.run("ALTER TABLE people ALTER COLUMN wage TYPE numeric(12, 2) USING wage::numeric")
    assert read(postgres.url(), query="people") == wanted
    # Smaller types, a fixed width, a comment at the end, a password.
    postgres.run("GRANT SELECT ON people TO reader")
    url = postgres.url(user="reader", password=PASSWORD)
    query = """
        SELECT number::int, age::smallint, weight, wage, city::varchar(50), note::char(4), hours,
               ill::text
        FROM people ORDER BY random() -- in any order
    """
    assert read(url, query=query) == wanted


def test_a_stream_is_the_table(postgres, tmp_path):
    table = people()
    postgres.load("streamed", shuffled(table))
    sources = {
        "postgresql": {"source": postgres.url(), "query": "streamed"},
        "sqlite": {
            "source": as_sqlite(shuffled(table), tmp_path / "a.db"),
            "query": "people",
        },
        "folder": {"source": as_folder(table, tmp_path / "parts")},
        "file": {"source": as_csv(table, tmp_path / "a.csv")},
    }
    found = {}
    for name, options in sources.items():
        opened = open_table(id_column="number", columns=table.column_names, **options)
        encoding = Encoding.read(opened, target="ill")
        ball = UnitBall(data_norm=encoding.data_norm, fit_intercept=True)
        stream = RowStream.of(opened, encoding, ball, size=37)
        elsewhere = pickle.loads(pickle.dumps(stream))
        blocks = [block for item in stream.items() for block in elsewhere.blocks(item)]
        assert [len(block) for block in blocks] == [37] * 8 + [4]
        found[name] = (
            np.concatenate([block.X for block in blocks]).tobytes(),
            np.concatenate([block.y for block in blocks]).tobytes(),
            [key for block in blocks for key in block.ids],
        )
    assert len({repr(rows) for rows in found.values()}) == 1
    # Neither the rows nor the address travel with the task.
    stream = pickle.dumps(RowStream.of(opened, encoding, ball, size=37).reader)
    assert len(stream) < 1000
    assert str(tmp_path).encode() not in stream


def test_any_column_name_is_just_a_name(postgres, tmp_path):
    random = np.random.default_rng(2)
    columns = {name: random.normal(size=50) for name in HOSTILE}
    table = pa.table(
        {"number": np.arange(50), **columns, "ill": random.choice(["no", "yes"], 50).tolist()}
    )
    postgres.load("hostile", table)
    wanted = read(table)
    assert read(postgres.url(), query="hostile") == wanted
    assert read(as_sqlite(table, tmp_path / "a.db"), query="people") == wanted
    pa.feather.write_feather(table, tmp_path / "a.feather")
    assert read(tmp_path / "a.feather") == wanted


def test_types_of_postgresql(postgres):
    postgres.run(
        "CREATE TYPE colour AS ENUM ('red', 'blue')",
        """CREATE TABLE typed AS SELECT i AS k, i::real / 3::real AS r, i % 2 = 0 AS b,
             (ARRAY['red', 'blue'])[1 + i % 2]::colour AS e, (i / 10.0)::numeric AS n,
             date '2020-01-01' + i AS d, '{}'::jsonb AS j, ARRAY[i] AS a, i::text::money AS m,
             gen_random_uuid() AS u
           FROM generate_series(1, 20) AS i""",
    )
    url = postgres.url()
    table = open_table(url, query="typed", id_column="k", columns=["r", "b", "e", "n"])
    assert [column.kind for column in table.columns] == ["numeric", "boolean", "text", "numeric"]
    assert table.column("n").to_pylist() == [i / 10 for i in range(1, 21)]
    assert table.column("r").to_pylist() == [
        float(np.float32(i) / np.float32(3)) for i in range(1, 21)
    ]
    assert table.column("e").to_pylist() == ["blue", "red"] * 10
    assert table.column("b").to_pylist() == [False, True] * 10
    for name in ("d", "j", "a", "m"):
        refused(
            f"column {name!r}",
            "leave it out",
            source=url,
            query="typed",
            id_column="k",
            columns=[name],
        )
    # Keys of other types are text.
    for key in ("u", "d", "n"):
        ids = open_table(url, query="typed", id_column=key, columns=["r"]).column(key).to_pylist()
        assert len(set(ids)) == 20
        assert ids == sorted(ids)
    refused("row 3", "NaN", source=url, id_column="k",
            query="SELECT k, CASE WHEN k = 3 THEN 'NaN'::numeric ELSE n END AS n FROM typed")  # fmt: skip


def test_cells_of_sqlite_have_classes_of_their_own(tmp_path):
    cells = {
        "number": ["b", "a", "d", "c"],
        "mixed": [1, "x", None, 2.0],
        "numbers": [1, "2.5", None, " 4 "],
        "both": [1, 2.5, None, -3],
        "whole": [1, 2, None, -3],
        "text": ["1", "2", None, ""],
        "none": [None] * 4,
        "bytes": [b"x", None, None, None],
        "long": [2**53 + 1, 0.5, 1, 2],
    }
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE people ({', '.join(cells)})")
        connection.executemany(
            f"INSERT INTO people VALUES ({', '.join('?' * len(cells))})",
            zip(*cells.values(), strict=True),
        )
    connection.close()
    asked = {"source": path, "query": "people", "id_column": "number"}
    names = ["mixed", "numbers", "both", "whole", "text", "none"]
    table = open_table(**asked, columns=names)
    kinds = ["text", "numeric", "numeric", "numeric", "text", "text"]
    assert [column.kind for column in table.columns] == kinds
    assert [column.missing for column in table.columns] == [1, 1, 1, 1, 2, 4]
    assert table.column("number").to_pylist() == ["a", "b", "c", "d"]
    assert table.column("mixed").to_pylist() == ["x", "1", "2", None]
    assert table.column("numbers").to_pylist() == [2.5, 1.0, 4.0, None]
    assert table.column("both").to_pylist() == [2.5, 1.0, -3.0, None]
    assert "'mixed'" in table.notices[0]
    refused("'bytes'", "blob", columns=["bytes"], **asked)
    refused("'long'", "past 2**53", columns=["long"], **asked)
    refused("several types", **{**asked, "id_column": "mixed"})


def statements(kind: str) -> list[tuple[str, str]]:
    """Queries that are refused, and a word of the reason."""
    shared = [
        ("SELECT 1 AS number; DROP TABLE kept", "semicolon"),
        ("SELECT ';' AS number", "semicolon"),
        ("", "empty"),
        (" ; ", "empty"),
        ("DELETE FROM kept", "not one SELECT"),
        ("INSERT INTO kept (number) VALUES (90210) RETURNING number", "not one SELECT"),
        ("SELECT absent FROM kept", "column that does not exist"),
        ("nowhere", "table that does not exist"),
        ("SELECT 1 AS other", "'number': is not in"),
        ("SELECT 1 AS number WHERE 1 = 0", "no rows"),
        ("SELECT NULL AS number, 2 AS a", "row 1: is missing"),
        ("SELECT number / 2 AS number, age FROM kept", "repeats the id of another"),
        ("SELECT 'a' AS number UNION ALL SELECT 'a '", "repeats the id of another"),
        ("SELECT 'b' AS number UNION ALL SELECT ' c'", "out of order"),
        ("SELECT 'b' AS number UNION ALL SELECT '?'", "row 1: is missing"),
    ]
    if kind == "sqlite":
        return shared
    return [
        *shared,
        # SQLite calls the second number:1.
        ("SELECT 'kanarie' AS number, 'x' AS number", "same name"),
        ("WITH x AS (DELETE FROM kept RETURNING *) SELECT * FROM x", "read-only"),
        ("SELECT nextval('counter') AS number", "only read"),
        ("SELECT 'kanarie'::int AS number", "converted"),
        ("SELECT 1 / (number - 90) AS age, number FROM kept", "compute"),
        ("SELECT 1) AS q; DELETE FROM kept; SELECT (2", "semicolon"),
    ]


def test_a_query_that_is_not_one_select_is_refused(postgres, tmp_path):
    postgres.load("kept", people())
    postgres.run("CREATE SEQUENCE counter")
    path = as_sqlite(people(), tmp_path / "a.db", "kept")
    for kind, source in (("postgresql", postgres.url()), ("sqlite", path)):
        for query, reason in statements(kind):
            refused(reason, source=source, query=query, id_column="number", missing=("?",))
        assert open_table(source, query="kept", id_column="number", columns=[]).rows == 300
        refused("--id", source=source, query="kept")
        refused("--query", source=source)


def test_an_address_is_never_shown(postgres, tmp_path):
    query = {"query": "people", "id_column": "number"}
    url = postgres.url(user="reader", password="wrong-90210")
    message = refused("password is wrong", source=url, **query)
    assert "reader" not in message
    refused("needs a password", source=postgres.url(user="reader"), **query)
    refused("no such database", source=postgres.url(database="nodb"), **query)
    refused("no such user", source=postgres.url(user="kanarie"), **query)
    refused("cannot be reached", source="postgresql://a:kanarie@127.0.0.1:1/db", **query)
    for hidden in (
        "postgresql://a:kan/arie@h/db",
        "postgresql://a:ka?narie@h/db",
        "postgresql://a:ka#narie@h/db",
        "postgresql://a:ka@narie@h/db",
        "postgresql://a:kanarie",
        "postgresql://h/d b",
        "postgresql://[/db",
    ):
        message = refused("not an address", source=hidden, **query)
        assert "narie" not in message
        assert "kan" not in message
    refused("mysql://: cannot be read", source="mysql://a:kanarie@h/db")
    asked = Query(url="postgresql://a:kanarie@h:1/db?password=90210", sql="'kanarie'", key="k")
    assert re.fullmatch(r"postgresql://h:1/db \(query [0-9a-f]{12}\)", asked.label)
    assert not any(secret in repr(asked) + asked.title for secret in SECRETS)
    refused("only a database", source=tmp_path / "a.csv", **query)
    refused("No such file", source="sqlite:///nowhere.db", **query)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    refused("not an SQLite database", source=f"sqlite:///{tmp_path}/a.csv", **query)


def test_every_pass_sees_the_rows_of_the_first(postgres, tmp_path):
    postgres.load("moving", people())
    path = as_sqlite(people(), tmp_path / "a.db")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = wal")
    sources = (
        (postgres.url(), "moving", lambda sql: postgres.run(sql)),
        (path, "people", writer.execute),
    )
    for source, name, change in sources:
        asked = {"source": source, "query": name, "id_column": "number", "columns": ["age"]}
        table = open_table(**asked)
        first = table.column("age").to_pylist()
        # One pass begins, another ends, rows come and change, the first goes on.
        blocks = table.blocks(10)
        seen = next(blocks).column(0).to_pylist()
        change(f"INSERT INTO {name} (number, age) VALUES (0, 1)")
        change(f"UPDATE {name} SET age = age + 1")
        assert table.column("age").to_pylist() == first
        for block in blocks:
            seen += block.column(0).to_pylist()
        assert seen == first
        later = open_table(**asked).column("age").to_pylist()
        assert later == [2.0, *(age + 1 for age in first)]
    writer.close()


def unread(url: str, text: str, rows: int) -> Table:
    """A table of a long text in each of its rows, at which nobody has looked yet."""
    query = f"SELECT i AS number, {text} AS t FROM generate_series(1, {rows}) AS i"
    table = open_table(url, query=query, id_column="number", columns=[])
    return replace(table, columns=(Column(name="t", kind="text", missing=0),))


def test_a_table_lets_go_of_its_connections(postgres):
    counted = "SELECT count(*) AS k FROM pg_stat_activity WHERE application_name = 'letting go'"

    def settles_at(count: int) -> bool:
        # A backend needs a moment to be gone.
        for _ in range(100):
            table = open_table(postgres.url(), query=counted, id_column="k")
            if table.column("k").to_pylist() == [str(count)]:
                return True
            time.sleep(0.05)
        return False

    url = f"{postgres.url()}&application_name=letting%20go"
    table = unread(url, "repeat('x', 2500)", 40_000)  # more than is read ahead
    assert settles_at(1)
    blocks = table.blocks(10)
    next(blocks)
    assert settles_at(2)
    blocks.close()
    assert settles_at(1)
    del blocks, table
    gc.collect()
    assert settles_at(0)


def resident() -> float:
    """MiB of memory that the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_never_more_than_some_blocks_are_in_memory(postgres, tmp_path):
    # 50,000 rows of 2 KiB: 100 MiB.
    table = unread(postgres.url(), "repeat(md5(i::text), 64)", 50_000)
    gc.collect()
    start_with, most, rows = resident(), 0.0, 0
    for block in table.blocks(1000, columns=["t"]):
        rows += block.num_rows
        most = max(most, resident() - start_with)
    assert rows == 50_000
    assert most < 60
    held = list(table.blocks(1000, columns=["t"]))
    assert resident() - start_with > 80
    del held


def test_a_server_that_dies_is_told_in_a_sentence(postgres):
    table = unread(postgres.url(), "repeat('kanarie', 300)", 40_000)
    blocks = table.blocks(100)
    next(blocks)
    try:
        stop(postgres, "immediate")
        for act in (lambda: list(blocks), lambda: table.column("t")):
            with pytest.raises(InvalidInput) as caught:
                act()
            message = str(caught.value)
            assert re.search(r"lost|ended|cannot be reached", message), message
            assert "kanarie" not in message
            assert message.endswith(".")
            assert "\n" not in message
    finally:
        start(postgres)


def check_folder(folder: Path, secrets: tuple[str, ...]) -> None:
    for path in folder.iterdir():
        content = path.read_bytes()
        for secret in secrets:
            assert secret.encode() not in content, (path.name, secret)


def test_the_program_reads_a_database(postgres, program, tmp_path):
    table = people(60).drop_columns(["wage"])
    postgres.load("patients", shuffled(table))
    postgres.run("GRANT SELECT ON patients TO reader")
    url = postgres.url(user="reader", password=PASSWORD)
    query = "SELECT * FROM patients WHERE city <> 'kanarie'"
    common = ["--target", "ill", "--id", "number", "--seed", "3", "--data-norm", "6"]
    out, other = tmp_path / "a", tmp_path / "b"
    ledger = ["--ledger", tmp_path / "patients.json"]  # of every release of this data set
    done = program("profile", url, "--query", query, *common, "--out", out)
    assert done.code == 2
    assert "--ledger" in done.message
    assert PASSWORD not in done.message
    assert not out.exists()
    done = program("profile", url, "--query", query, *common, *ledger, "--out", out)
    assert done.code == 0, done.err
    csv_done = program("profile", as_csv(table, tmp_path / "p.csv"), *common, "--out", other)
    assert csv_done.code == 0, csv_done.err
    name = "profile.CURATOR-ONLY.parquet"
    found, wanted = (pa.parquet.read_table(folder / name) for folder in (out, other))
    assert found.equals(wanted)
    assert found.num_rows == 60
    check_folder(out, (PASSWORD, "kanarie"))
    assert PASSWORD not in done.out + done.err
    pages = (out / "report.CURATOR-ONLY.html").read_text()
    assert Query(url=url, sql=query, key="number").title in pages
    assert "p.csv" in (other / "report.CURATOR-ONLY.html").read_text()
    # Persons, with the key for order alone.
    grouped = ["--target", "ill", "--id", "number", "--person", "note", "--drop", "city"]
    postgres.run("UPDATE patients SET note = 'n' || number / 2 WHERE true")
    done = program(
        "profile", url, "--query", "patients", *grouped, *ledger, "--out", tmp_path / "c"
    )
    assert done.code == 0, done.err
    assert "number" not in (tmp_path / "c" / "model.json").read_text()
    failed = program(
        "profile", url, "--query", "patients; patients", *common, *ledger, "--out", tmp_path / "d"
    )
    assert failed.code != 0
    assert "semicolon" in failed.message
    assert PASSWORD not in failed.err
    assert not (tmp_path / "d").exists()


def test_folders_of_parquet_files(tmp_path):
    table = people(30).drop_columns(["wage"])
    for year, part in (
        ("2024", "b"),
        ("2024", "a"),
        ("2023", "z"),
        ("__HIVE_DEFAULT_PARTITION__", "a"),
    ):
        folder = tmp_path / "t" / f"year={year}" / "café=a%20b"
        folder.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(table, folder / f"{part}.parquet")
    (tmp_path / "t" / "_SUCCESS").write_text("")
    (tmp_path / "t" / "_delta").mkdir()
    (tmp_path / "t" / "_delta" / "x.parquet").write_text("not one")
    opened = open_table(tmp_path / "t")
    assert opened.rows == 120
    assert opened["year"].kind == "numeric"
    assert opened.column("year").to_pylist() == [2023.0] * 30 + [2024.0] * 60 + [None] * 30
    assert set(opened.column("café").to_pylist()) == {"a b"}
    assert open_table(tmp_path / "t" / "year=2024" / "café=a%20b").rows == 60
    (tmp_path / "none").mkdir()
    refused("without Parquet files", source=tmp_path / "none")
    (tmp_path / "t" / "other=1").mkdir()
    pa.parquet.write_table(table, tmp_path / "t" / "other=1" / "a.parquet")
    refused("name other columns", source=tmp_path / "t")
    folder = tmp_path / "twice" / "age=1"
    folder.mkdir(parents=True)
    pa.parquet.write_table(table, folder / "a.parquet")
    refused("same name", source=tmp_path / "twice")


def test_arrow_files_that_are_not_whole(tmp_path):
    path = tmp_path / "a.feather"
    pa.feather.write_feather(people(), path, compression="uncompressed")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused("not a whole Arrow file", source=path)
    path.write_bytes(b"ARROW1\0\0")
    refused("not a whole Arrow file", source=path)
    reader = people().to_reader()
    refused("read once", source=reader)


def test_without_the_driver_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    with pytest.raises(MissingExtra, match=r"pip install 'expost\[postgres\]'"):
        open_table("postgresql://a@h/db", query="t", id_column="k")


def test_the_server_is_of_this_test_alone(postgres):
    assert isinstance(postgres, Server)
    assert (postgres.folder / f".s.PGSQL.{postgres.port}").exists()
