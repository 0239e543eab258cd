"""One SQLite file with numbered migrations, safe for several processes: the run index and the memory are such files."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kforge.errors import KforgeError, StoreError
from kforge.store.faults import reason, storing

EAGER_BYTES = 4 << 20  # a file up to here is checked whenever it is opened: a few milliseconds
BESIDE_BYTES = 64 << 10
CHECKED_S = 86_400.0  # a larger one once a day, since a check reads all of it; damage met on the way is said as well
ELSEWHERE = "choose another folder by KFORGE_STATE, or `state` in kforge.toml"


class _Connection(sqlite3.Connection):
    """Takes any text: SQLite's is UTF-8, and half a pair of surrogates (an error's message may hold one) is none."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql, [_text(value) if isinstance(value, str) else value for value in parameters])


def _text(value: str) -> str:
    return value.encode(errors="backslashreplace").decode()


def numbered(folder: Path) -> list[tuple[int, str]]:
    """(number, SQL) of every migration in a folder, in order, numbered from 1 without gaps."""
    found: list[tuple[int, str]] = []
    for path in sorted(folder.glob("*.sql")):
        match = re.match(r"(\d{4})_", path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise KforgeError(f"migration {path.name} is out of order", f"number it {len(found) + 1:04d}")
        found.append((int(match[1]), path.read_text()))
    return found


class Database:
    """A file made and migrated when opened, for all threads; each kind says what it is for and how to help itself."""

    purpose = "a database"
    unwritten = ""
    unread = ""

    def __init__(self, path: Path | str, migrations: list[tuple[int, str]]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        # A folder that cannot be written to is still one to read from: what is there is shown, and no write begins.
        fixed = self.path.exists() and not os.access(self.path.parent, os.W_OK)
        with storing(self.path, ELSEWHERE):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit mode: transactions are begun by hand so that writers queue instead of failing half-way.
            place = f"{self.path.resolve().as_uri()}?immutable=1" if fixed else self.path
            self._db = sqlite3.connect(
                place, timeout=30, isolation_level=None, check_same_thread=False, uri=fixed, factory=_Connection
            )
        self._db.row_factory = sqlite3.Row
        try:
            if fixed:
                self._expect(len(migrations))
            else:
                self._make(migrations)
            self._check(fixed)
        except (OSError, sqlite3.Error) as error:
            self._db.close()
            words = f"{self.path} cannot be used as {self.purpose}"
            full = _is_full(self.path.parent)
            refused = full or getattr(error, "sqlite_errorname", "").startswith(("SQLITE_IOERR", "SQLITE_FULL"))
            raise StoreError(
                f"{words}: {'the disk is full' if full else reason(error)}",
                f"{'make room' if refused else 'move it away'}, or {ELSEWHERE}",
            ) from error
        except KforgeError:
            self._db.close()
            raise

    def _check(self, fixed: bool) -> None:
        """sqlite3.DatabaseError names the first damage. The time of a large file's last check is that of `.checked`."""
        mark = self.path.with_suffix(".checked")
        try:
            if self.path.stat().st_size > EAGER_BYTES and time.time() - mark.stat().st_mtime < CHECKED_S:
                return
        except FileNotFoundError:  # never checked
            pass
        damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            mark.unlink(missing_ok=True)
            raise sqlite3.DatabaseError(f"damaged: {' '.join(damage.split())}")
        if not fixed and self.path.stat().st_size > EAGER_BYTES:
            mark.touch()

    def _make(self, migrations: list[tuple[int, str]]) -> None:
        # Two processes that make the file at once: the busy timeout does not cover the change to WAL.
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._migrate(migrations)

    def _expect(self, version: int) -> None:
        """A file that cannot be migrated must be of this version."""
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found != version:
            raise KforgeError(
                f"{self.path} has version {found}, this kforge reads {version}, and its folder cannot be written to",
                "make the folder writable" if found < version else "upgrade kforge",
            )

    def _migrate(self, known: list[tuple[int, str]]) -> None:
        with self.transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > len(known):
                raise KforgeError(
                    f"{self.path} has version {version}, newer than this kforge knows ({len(known)})", "upgrade kforge"
                )
            for number, sql in known[version:]:
                for statement in _statements(sql):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction whose failure is a StoreError."""
        with storing(self.path, self.unwritten), self.transaction() as db:
            yield db

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All statements of the block, or none of them."""
        with self._lock:
            # IMMEDIATE takes the write lock at once: a read later upgraded could fail with "database is locked".
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk ends the transaction by itself
                    self._db.execute("ROLLBACK")
                raise

    def write(self, sql: str, *values: Any) -> int:
        """One statement in a transaction of its own; the rows that it changed. StoreError."""
        with self.writing() as db:
            return db.execute(sql, values).rowcount

    def read(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of a query. StoreError."""
        with storing(self.path, self.unread, "read"), self._lock:
            return self._db.execute(sql, values).fetchall()

    def close(self) -> None:
        """Closes the file; it cannot be used afterwards."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_full(folder: Path) -> bool:
    """Whether there is no room for what SQLite keeps beside an open file; it tells that as an I/O error."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < BESIDE_BYTES


def _statements(sql: str) -> Iterator[str]:
    """The single statements of a migration (executescript would commit the surrounding transaction)."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise KforgeError(f"migration ends inside a statement: {statement.strip()[:60]}")
