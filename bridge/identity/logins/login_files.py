"""Stores logins in files that only their owner can read, one file for each login.

All processes of a machine share the files, even while one process owns the SQLite stores of its agents. Bridges with
different keys have separate files, since they could not read each other's logins. A process that renews a login holds
the lock beside its file. The system releases the lock when the process dies. No event announces the release, so other
processes try again after short pauses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from bridge.concurrency import Backoff
from bridge.errors import StoreLockedError, UsageError
from bridge.identity.logins.kept_logins import KeptLogins, Login, LoginKey
from bridge.identity.logins.login_records import LoginRecords, login_id
from bridge.local.file_lock import own_file
from bridge.local.private_files import (
    STATE_BYTES,
    private_file,
    private_folder,
    read_regular,
    write_privately,
)
from bridge.local.user_folders import LOGINS
from bridge.seal import key_in, keys_in

_ENDING: Final = ".login"
_LOCK_ENDING: Final = ".lock"

_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.25
"""The longest pause between tries for the lock: a refresh takes tenths of a second."""


@dataclass(frozen=True)
class LoginFiles:
    """Stores logins in a folder. See `LoginKeeper`."""

    state: Path
    """The folder for state. It has the folder of logins and, if no key is configured, the key."""
    keys: tuple[Path | str, ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    @property
    def _folder(self) -> Path:
        return self.state / LOGINS

    @cached_property
    def _records(self) -> LoginRecords:
        return LoginRecords(keys_in(self.keys) or [key_in(self.state)])

    async def find(self, key: LoginKey) -> Login | None:
        """See `LoginKeeper`."""
        return await anyio.to_thread.run_sync(self._read, key)

    @asynccontextmanager
    async def held(self, key: LoginKey) -> AsyncIterator[HeldFile]:
        """See `LoginKeeper`."""
        private_folder(self._folder)
        pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        with ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(own_file(self._folder / f"{login_id(key)}{_LOCK_ENDING}"))
                    break
                except StoreLockedError:
                    await anyio.sleep(pauses.next())
            login, is_there = None, self.has(key)
            with suppress(UsageError):  # a new login may overwrite a file that cannot be opened
                login = self._read(key)
            yield HeldFile(self, key, login, is_there=is_there)

    async def all(self) -> KeptLogins:
        """See `LoginKeeper`."""
        return await anyio.to_thread.run_sync(lambda: self._records.all_of(self._rows()))

    def _rows(self) -> Iterator[tuple[str, bytes]]:
        for path in self._folder.glob(f"*{_ENDING}"):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                yield path.stem, read_regular(path, STATE_BYTES)

    def has(self, key: LoginKey) -> bool:
        """Whether there is a file of a login that was sealed with one of the keys."""
        return self._is_any(key) and any(path.exists() for path in self._paths(key))

    def _paths(self, key: LoginKey) -> list[Path]:
        """The possible files of a login, one for each key."""
        return [self._folder / f"{login_id(key)}-{key_id}{_ENDING}" for key_id in self._records.key_ids]

    def _is_any(self, key: LoginKey) -> bool:
        """Whether a file of the login exists, sealed with any key. This does not create the bridge's key."""
        return any(self._folder.glob(f"{login_id(key)}-*{_ENDING}"))

    def _read(self, key: LoginKey) -> Login | None:
        if not self._is_any(key):
            return None
        for path in self._paths(key):
            with suppress(FileNotFoundError):
                private_file(path)
                key_in_file, login = self._records.opened(path.stem, read_regular(path, STATE_BYTES))
                if key_in_file != key:
                    raise UsageError(
                        f"{path} holds the login of another peer or principal: remove it, and log in again"
                    )
                return login
        if self._is_any(key):
            raise UsageError(
                f"the login in {self._folder} was sealed with a key that is missing here: put that key back into"
                " `keys`, or log in again"
            )
        return None

    def write(self, key: LoginKey, login: Login) -> None:
        """Write a login whose lock is held."""
        path, *older = self._paths(key)
        write_privately(path, self._records.sealed(path.stem, key, login), lasting=True)
        for other in older:
            other.unlink(missing_ok=True)

    def remove(self, key: LoginKey) -> None:
        """Remove a login whose lock is held. The lock file stays: another process may be about to lock it."""
        for path in self._paths(key):
            path.unlink(missing_ok=True)


class HeldFile:
    """One login while its lock is held. See `HeldLogin`."""

    def __init__(self, files: LoginFiles, key: LoginKey, login: Login | None, *, is_there: bool) -> None:
        self.login = login
        self.is_there = is_there
        self._files = files
        self._key = key

    async def write(self, login: Login) -> None:
        """See `HeldLogin`."""
        await anyio.to_thread.run_sync(self._files.write, self._key, login)
        self.login = login

    async def remove(self) -> None:
        """See `HeldLogin`."""
        await anyio.to_thread.run_sync(self._files.remove, self._key)
        self.login = None
