"""Connections to PostgreSQL that are renewed automatically, and jobs that no caller's cancellation interrupts.

A job runs in a task of the store. A cancelled caller stops waiting, and the job continues to its end, because a driver
that is interrupted within a statement waits for the database before it gives up the connection. For the same reason a
job that takes too long is not cancelled: its connection is cut, and the job fails as if the network broke.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bridge.errors import StoreAwayError, StoreError, UsageError
from bridge.telemetry.database_sight import DatabaseSight

if TYPE_CHECKING:
    import anyio.abc

T = TypeVar("T")
Job = Callable[[AsyncConnection], Awaitable[T]]

CONNECT_SECONDS: Final = 5
"""The time to connect, unless the URL sets another. libpq accepts whole seconds, at least 2."""

# A connection that breaks silently is noticed by keep-alives after 4 s, or by unacknowledged data after 5 s.
_LIVENESS: Final[dict[str, Any]] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 5000,
    "target_session_attrs": "read-write",
    "application_name": "mcp-a2a",
}

_PLACES: Final = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "service": "PGSERVICE"}
"""The parameters of libpq that locate the server. Each has the environment variable that libpq reads if the parameter
is missing."""

_NAME_AUTHORITY: Final = (
    "Name the authority of the server's certificate in the URL of the store, with ?sslrootcert=/etc/ssl/ca.pem, or with"
    " ?sslrootcert=system if this machine trusts the authority"
)
_HINTS: Final = {
    "certificate verify failed": _NAME_AUTHORITY,
    "root certificate file": _NAME_AUTHORITY,
    "does not match host name": "Use the host name of the server's certificate in the URL of the store",
    "session is read-only": (
        "This server is a standby, or refuses writes: name the primary server in the URL of the store, or all servers"
    ),
    "server does not support SSL": (
        "A server on another machine must prove its identity: turn on TLS there, or set another sslmode in the URL of"
        " the store"
    ),
}
"""What the user can do, by a part of libpq's message."""

_READ_ONLY: Final = "25006"
"""The SQLSTATE of a statement that a server refuses because it has become a standby."""
_OF_CONTENT: Final = ("21", "22", "23", "54")
"""The SQLSTATE classes of faults in the stored content: cardinality, data, integrity, and limits of the database."""


class StoreTasks:
    """The async tasks of a store. Only `stop` ends them. A cancellation from outside does not, because the last changes
    are stored while the block of the store ends."""

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self._scopes: set[anyio.CancelScope] = set()
        self._is_stopped = False

    async def begin(self) -> None:
        """Accept tasks from now on."""
        self._group = await anyio.create_task_group().__aenter__()

    def start(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Run `work` until it is done or `stop` is called.

        Raises:
            StoreError: the store is closed.
        """
        if self._group is None or self._is_stopped:
            raise StoreError("the store is closed")
        self._group.start_soon(self._shielded, work, arguments)

    async def _shielded(self, work: Callable[..., Awaitable[object]], arguments: tuple[object, ...]) -> None:
        with anyio.CancelScope(shield=True) as scope:
            if self._is_stopped:
                scope.cancel()
            self._scopes.add(scope)
            try:
                await work(*arguments)
            except StoreError:
                if not self._is_stopped:
                    raise
            finally:
                self._scopes.discard(scope)

    def stop(self) -> None:
        """Accept no more tasks, and cancel all."""
        self._is_stopped = True
        for scope in tuple(self._scopes):
            scope.cancel()

    async def join(self) -> None:
        """Wait until all tasks have ended. Call `stop` before."""
        if self._group is not None:
            # Without the exception of the store's block, which the group would wrap in an exception group.
            await self._group.__aexit__(None, None, None)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database."""

    url: str = field(repr=False)
    direct_url: str = field(repr=False)
    """Leads to the database itself and not to a pool, so that sessions last and receive NOTIFY."""
    is_direct: bool
    """Whether `url` is direct too."""
    sight: DatabaseSight = field(default_factory=DatabaseSight, compare=False, repr=False)
    """Logs outages of the database, once for all users of this object."""

    @classmethod
    def of(cls, url: str, direct_url: str | None, sight: DatabaseSight | None = None) -> Self:
        """The address at a URL that libpq understands. Without `direct_url`, `url` is direct.

        Raises:
            UsageError: libpq does not understand a URL.
        """
        try:
            parameters = with_defaults(url)
            direct = parameters if direct_url is None else with_defaults(direct_url)
            return cls(parameters, direct, direct_url is None, sight or DatabaseSight())
        except psycopg.ProgrammingError as exc:  # its message may quote the URL and so a password
            raise UsageError("the URL of the store is not one that libpq understands") from exc


def with_defaults(url: str) -> str:
    """The connection string of a URL, with our defaults for what the URL does not set. A server on another machine must
    prove its identity with TLS."""
    parameters = conninfo_to_dict(url)
    defaults = dict(_LIVENESS)
    if not _is_local(parameters):
        defaults["sslmode"] = "verify-full"
    return make_conninfo("", **{**defaults, **parameters})


def _is_local(parameters: Mapping[str, Any]) -> bool:
    """Whether every host of a connection string is this machine. A libpq service (`service=`) may be anywhere: another
    file defines its host."""
    values = {key: str(parameters.get(key) or os.environ.get(name, "")) for key, name in _PLACES.items()}
    hosts = [host for key in ("host", "hostaddr") for host in values[key].split(",")]
    return not values["service"] and all(map(_is_local_host, hosts))


def _is_local_host(host: str) -> bool:
    """Whether a host is this machine: a loopback address, or the folder or name of a unix socket."""
    if not host or host[0] in "/@" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def connect(conninfo: str, seconds: float, *, is_direct: bool) -> AsyncConnection:
    """A new connection in autocommit mode, made within `seconds`.

    A connection that is not direct may go through a pool that gives each transaction another session, so it prepares no
    statements.

    Raises:
        StoreAwayError: the database cannot be reached.
    """
    try:
        with anyio.fail_after(seconds):
            return await AsyncConnection.connect(
                conninfo, autocommit=True, prepare_threshold=5 if is_direct else None
            )
    except TimeoutError as exc:
        raise StoreAwayError(f"the database cannot be reached: no answer within {seconds:g} s") from exc
    except (psycopg.Error, OSError) as exc:
        raise StoreAwayError(f"the database cannot be reached: {first_line(exc)}{_hint_for(exc)}") from exc


def _hint_for(exc: BaseException) -> str:
    """The hint for a failed connection, for messages of libpq that do not say what to do."""
    return next((f". {hint}" for sign, hint in _HINTS.items() if sign in str(exc)), "")


@asynccontextmanager
async def connected(address: DatabaseAddress, seconds: float, store: str) -> AsyncIterator[AsyncConnection]:
    """A connection for this block, for a command of the user.

    Raises:
        UsageError: the database cannot be reached, or refuses.
    """
    try:
        connection = await connect(address.url, seconds, is_direct=address.is_direct)
        try:
            yield connection
        finally:
            await close(connection)
    except StoreAwayError as exc:
        raise UsageError(str(exc)) from exc
    except psycopg.Error as exc:
        raise UsageError(f"the store {store} cannot be used: {first_line(exc)}") from exc


def cut(connection: AsyncConnection) -> None:
    """Fail everything that waits for this connection now, as if the network broke."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


@contextmanager
def bounded(connection: AsyncConnection, seconds: float) -> Iterator[None]:
    """Cut a connection if this block takes longer than `seconds`."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    try:
        yield
    finally:
        timer.cancel()


async def close(connection: AsyncConnection) -> None:
    """Close a connection in any state."""
    with anyio.CancelScope(shield=True), suppress(psycopg.Error, OSError):
        await connection.close()


def first_line(exc: BaseException) -> str:
    """The driver's message, without the lines of context after it."""
    return str(exc).strip().split("\n", 1)[0] or type(exc).__name__


def is_of_content(exc: psycopg.Error) -> bool:
    """Whether a fault is in the content to store, so that another connection would not help."""
    return exc.sqlstate[:2] in _OF_CONTENT if exc.sqlstate else isinstance(exc, psycopg.DataError)


def is_lost(exc: psycopg.Error, connection: AsyncConnection) -> bool:
    """Whether a fault is in the connection or the server, and not in the statement."""
    if connection.closed or exc.sqlstate == _READ_ONLY:
        return True
    return isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError)) and not is_of_content(exc)


class DatabaseConnections:
    """A few connections that jobs share."""

    def __init__(self, tasks: StoreTasks, address: DatabaseAddress, most: int, job_seconds: float) -> None:
        self._tasks = tasks
        self._address = address
        self._job_seconds = job_seconds
        self._free: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._slots = anyio.Semaphore(most)

    async def run(self, job: Job[T]) -> T:
        """Run a job on a connection of its own. If an idle connection turns out to be lost, the job runs again on a new
        connection, so the job must be safe to run twice.

        Raises:
            StoreError: the database cannot be reached, or refuses.
        """
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tasks.start(self._settle, job, outcome)
        return await asyncio.shield(outcome)

    async def _settle(self, job: Job[T], outcome: asyncio.Future[T]) -> None:
        try:
            result = await self._run_with_retry(job)
        except Exception as exc:  # noqa: BLE001 - the caller gets it, and the store continues
            _fail(outcome, exc)
        except BaseException:
            _fail(outcome, StoreError("the store was closed"))
            raise
        else:
            outcome.set_result(result)

    async def _run_with_retry(self, job: Job[T]) -> T:
        async with self._slots:
            if self._free:
                with suppress(StoreAwayError):
                    return await self._run_on(job, self._free.pop())
                await self._drop_free()
            return await self._run_on(job, await self._connect())

    async def _connect(self) -> AsyncConnection:
        return await connect(self._address.url, self._job_seconds, is_direct=self._address.is_direct)

    async def _run_on(self, job: Job[T], connection: AsyncConnection) -> T:
        is_good = False
        self._busy.add(connection)
        try:
            with bounded(connection, self._job_seconds):
                result = await job(connection)
            is_good = True
        except psycopg.Error as exc:
            if is_lost(exc, connection):
                raise StoreAwayError(f"the database is away: {first_line(exc)}") from exc
            is_good = True
            raise StoreError(f"the database refused: {first_line(exc)}") from exc
        finally:
            self._busy.discard(connection)
            if is_good:
                self._free.append(connection)
            else:
                await close(connection)
        return result

    async def _drop_free(self) -> None:
        """Close the idle connections: if one is lost, the others are lost too."""
        free, self._free = self._free, []
        for connection in free:
            await close(connection)

    def cut(self) -> None:
        """Fail the running jobs now."""
        for connection in self._busy:
            cut(connection)

    async def close(self) -> None:
        """Close all connections. Call this when no job runs any more."""
        await self._drop_free()


def _fail(outcome: asyncio.Future[Any], exc: Exception) -> None:
    outcome.set_exception(exc)
    outcome.exception()  # a cancelled caller never retrieves it, and asyncio would log that
