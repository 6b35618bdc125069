"""A listening socket that a process inherits and shares with others: several replicas then have one accept queue.

systemd passes such a socket to each instance of a service (sd_listen_fds(3): `LISTEN_PID`, `LISTEN_FDS`, and the
sockets from descriptor 3 on). Another parent names the descriptor with `--fd`. A busy process accepts nothing, so each
new connection goes to a process that has time for it.

A client of a shared socket reaches any of the processes. So each process also listens at its `replica_url`. There the
other processes pass requests on to it, and there a monitor reads its health.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.assembly.plan import Plan
from bridge.config.text.wording import listed
from bridge.errors import UsageError
from bridge.http.request_checks import is_loopback
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.process.listening import listening
from bridge.replicas.replica_address import ReplicaAddress

_FIRST_OF_SYSTEMD: Final = 3
"""The first descriptor that systemd passes (SD_LISTEN_FDS_START)."""

_PAGE: Final = "docs/replicas.md, Many cores"
_OF_EACH: Final = "--replica-url unix:/run/mcp-a2a/1.sock"


@dataclass(frozen=True)
class SharedListener:
    """A listening socket from which other processes accept, too."""

    listener: socket.socket
    said: str
    """The source of the socket, for messages: an option or systemd."""

    def placed(self, plan: Plan) -> Plan:
        """The plan with the address of the socket.

        Raises:
            UsageError: several processes cannot serve the plan as one bridge.
        """
        host, port = self.listener.getsockname()[:2]
        plan = replace(plan, place=replace(plan.place, host=host, port=port))
        require_shareable(plan, self.said)
        return plan


def require_shareable(plan: Plan, source: str) -> None:
    """Refuse a plan that several processes at one socket cannot serve as one bridge. Messages call the socket `source`.

    Raises:
        UsageError: tasks, handles, sessions or the files of a tool server would belong to one process alone.
    """
    place = plan.place
    if place.shared_store is None:
        raise UsageError(
            f"{source} shares a socket with other processes, and without PostgreSQL each of them would know other"
            ' tasks: write store = { env = "DATABASE_URL" } in [bridge]; `mcp-a2a store move` takes over the tasks of a'
            f" SQLite file ({_PAGE})"
        )
    if not place.keys:
        raise UsageError(
            f"{source} shares a socket with other processes, and each of them has to open the handles of the others:"
            ' write keys = [{ env = "BRIDGE_KEY" }] in [bridge]'
        )
    if place.replica is None:
        raise UsageError(
            f"{source} shares a socket with other processes, and they need an address of this process only: give each"
            f" process one, for example {_OF_EACH} ({_PAGE})"
        )
    if is_loopback(place.host) and not _is_on_this_machine(place.replica):
        raise UsageError(
            f"{source}: the socket is for this machine alone, and {place.replica.text} is not: write unix:/PATH, or"
            " http://127.0.0.1:PORT"
        )
    if place.replica.is_secure and place.tls is None:
        raise UsageError(
            f"{place.replica.text} is https, and the bridge has no certificate: write http or unix:"
        )
    alone = [
        name
        for name, server in plan.servers.items()
        if isinstance(server.target, StdioTarget) and not server.each_replica
    ]
    if alone:
        raise UsageError(
            f"{source} shares a socket with other processes, and each of them would start {listed(alone, 'and')}. Two"
            " processes may destroy what a tool server keeps. Run the server once, behind HTTP, and write its `url`; or"
            f" write each_replica = true for a server that keeps nothing ({_PAGE})"
        )


def _is_on_this_machine(address: ReplicaAddress) -> bool:
    return address.host.startswith("/") or is_loopback(address.host)


@contextmanager
def shared_listener(fd: int | None, environment: MutableMapping[str, str]) -> Iterator[SharedListener | None]:
    """The socket with this number, or else the socket that systemd passes; None if there is neither. Closed at the end.

    The variables of systemd are removed from the environment, because they are not for child processes.

    Raises:
        UsageError: the descriptor is no listening TCP socket, systemd passes several, or this system has none.
    """
    source, number = "--fd", fd
    passed = _passed_by_systemd(environment)
    if number is None:
        source, number = "LISTEN_FDS", passed
    if number is None:
        yield None
        return
    if os.name != "posix":
        raise UsageError(f"{source} {number}: a process on Windows inherits no socket by its number")
    with _socket_of(number, source) as listener:
        yield SharedListener(listener, source)


def _passed_by_systemd(environment: MutableMapping[str, str]) -> int | None:
    """The descriptor that systemd passes to this process.

    Raises:
        UsageError: there are several.
    """
    meant_for, count = environment.get("LISTEN_PID"), environment.get("LISTEN_FDS")
    if count is None or meant_for != str(os.getpid()):
        return None
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        environment.pop(name, None)
    if count == "0":
        return None
    if count != "1":
        raise UsageError(
            f"systemd passes {count} sockets, and the bridge serves one: leave one `ListenStream=` in the .socket unit,"
            " and one unit in `Sockets=`"
        )
    return _FIRST_OF_SYSTEMD


def _socket_of(number: int, source: str) -> socket.socket:
    try:
        is_socket = stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError as exc:
        raise UsageError(
            f"{source}: there is no open descriptor {number}: its parent has to pass the socket on"
        ) from exc
    if not is_socket:
        raise UsageError(f"{source}: descriptor {number} is no socket")
    inherited = socket.socket(fileno=number)
    is_tcp = inherited.type == socket.SOCK_STREAM and inherited.family in (socket.AF_INET, socket.AF_INET6)
    if not is_tcp or not _listens(inherited):
        inherited.detach()  # the parent process owns it
        raise UsageError(f"{source}: descriptor {number} is no listening TCP socket")
    # asyncio turns Nagle's algorithm off for connections whose listener names the protocol; see `listening`.
    named = socket.socket(inherited.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=inherited.detach())
    named.set_inheritable(False)
    return named


def _listens(listener: socket.socket) -> bool:
    try:
        return listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    except OSError:
        return True  # macOS does not say it; accepting fails later


@asynccontextmanager
async def replica_listener(address: ReplicaAddress) -> AsyncIterator[socket.socket]:
    """The listener for the other replicas, which only this process has. Only this user can reach a unix socket.

    Raises:
        UsageError: it cannot listen there.
    """
    what, choose = "the other replicas", "--replica-url"
    if not address.host.startswith("/"):
        port = address.port or (443 if address.is_secure else 80)
        async with listening(address.host, port, what_for=what, choose_by=choose) as listener:
            yield listener
        return
    with _unix_listener(Path(address.host), what, choose) as listener:
        yield listener


@contextmanager
def _unix_listener(path: Path, what_for: str, choose_by: str) -> Iterator[socket.socket]:
    with _unix_socket() as listener:
        try:
            _bind(listener, path)
        except OSError as exc:
            words = f"cannot listen for {what_for} on {path}: {exc.strerror}; choose another with {choose_by}"
            raise UsageError(words) from exc
        listener.listen()
        try:
            yield listener
        finally:
            with suppress(OSError):
                path.unlink()


def _unix_socket() -> socket.socket:
    if sys.platform != "win32":
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:  # noqa: RET505 - mypy takes the branch of its platform alone
        raise UsageError("Windows has no sockets like unix:/PATH: write http://127.0.0.1:PORT as replica_url")


def _bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket that only this user can reach. The socket of a dead process is replaced.

    Raises:
        OSError: another process listens there, something else is there, or the folder takes no file.
    """
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _is_answered(path):
            path.unlink()
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)


def _is_answered(path: Path) -> bool:
    with _unix_socket() as caller:
        caller.settimeout(1)
        try:
            caller.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True
