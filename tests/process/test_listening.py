"""The socket of a server: one owner of a port on every system, and what is said of a port that cannot be had."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import httpx2
import pytest

from bridge.errors import UsageError
from bridge.process.listening import listening, refusal_of, sole_owner_option
from tests.support.command import run_here
from tests.support.files import DEVTOOLS, RAW, started, written
from tests.support.ports import free_port

BSD = {"SO_REUSEADDR": 4}
WINDOWS = {"SO_REUSEADDR": 4, "SO_EXCLUSIVEADDRUSE": ~4}


@pytest.mark.parametrize(("names", "option"), [(BSD, 4), (WINDOWS, ~4)], ids=["posix", "windows"])
def test_a_port_is_taken_with_the_option_that_keeps_others_out(names: dict[str, int], option: int) -> None:
    assert sole_owner_option(names) == option


async def test_a_port_has_one_owner() -> None:
    port = free_port()
    async with listening("127.0.0.1", port):
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .*--port"):
            async with listening("127.0.0.1", port):
                pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "{main}"), "cannot listen on 127.0.0.1 port {main}: "),
        (
            ("--port", "0", "--metrics", "127.0.0.1:{main}"),
            "cannot listen for metrics on 127.0.0.1 port {main}: ",
        ),
    ],
)
def test_the_message_names_the_listener_whose_port_is_busy_and_its_option(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    port = free_port()
    written(tmp_path, RAW, DEVTOOLS)
    with socket.create_server(("127.0.0.1", port)):
        given = [word.format(main=port) for word in words]
        done = run_here("serve", *given, state=tmp_path / "state", folder=tmp_path)
    assert done.returncode == 2
    assert said.format(main=port) in done.stderr
    assert f"choose another with {given[-2]}" in done.stderr


def test_metrics_have_a_port_by_variable(tmp_path: Path) -> None:
    port = free_port()
    path = written(tmp_path, "[bridge]\nmetrics = '127.0.0.1:1'\n", RAW, DEVTOOLS)
    variables = {"MCP_A2A_SERVE_METRICS": f"127.0.0.1:{port}"}
    with started("serve", str(path), "--port", state=tmp_path / "state", until="Try it", **variables):
        assert "mcp_a2a_build_info" in httpx2.get(f"http://127.0.0.1:{port}/metrics").text


async def test_a_port_that_was_left_can_be_had_at_once() -> None:
    port = free_port()
    async with listening("127.0.0.1", port) as first:
        with socket.create_connection(("127.0.0.1", port)) as caller:
            served, _ = first.accept()
            served.close()  # so that the connection stays in TIME_WAIT at the server
            assert caller.recv(1) == b""
    async with listening("127.0.0.1", port) as second:
        assert second.getsockname() == ("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here, or only that")
async def test_every_address_is_that_of_both_families() -> None:
    port = free_port()
    async with listening("::", port) as listener:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port)):
                listener.accept()[0].close()


@pytest.mark.windows
async def test_windows_keeps_out_a_server_that_would_share_the_port() -> None:
    port = free_port()
    async with listening("127.0.0.1", port):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(PermissionError):
                other.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            OSError(errno.EADDRINUSE, "Address already in use"),
            "cannot listen on ::1 port 80: Address already in use; choose another with --port (make run: PORT=...)",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            "cannot listen on ::1 port 80: Permission denied; choose another with --port (make run: PORT=...)",
        ),
        (
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "cannot listen on ::1 port 80: Cannot assign requested address",
        ),
        (
            OverflowError("bind(): port must be 0-65535."),
            "cannot listen on ::1 port 80: bind(): port must be 0-65535.",
        ),
    ],
    ids=["taken", "owned", "address", "number"],
)
def test_another_port_is_suggested_where_that_helps(fault: OSError | OverflowError, said: str) -> None:
    assert str(refusal_of("::1", 80, fault)) == said
