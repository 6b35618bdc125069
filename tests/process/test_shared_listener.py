"""Several processes at one listening socket: what they serve together, what each serves alone, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from cryptography import x509

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load_text
from bridge.errors import UsageError
from bridge.process.shared_listener import SharedListener, replica_listener, shared_listener
from bridge.replicas.replica_address import ReplicaAddress
from tests.support.certificates import Authority
from tests.support.command import children_of, environment, gone, run_here
from tests.support.issuer import TokenIssuer, bearer
from tests.support.lines import WAIT_SECONDS, Lines
from tests.support.postgres import database_url, new_agent
from tests.support.running import RAW_SERVER, VERSION, listening

posix = pytest.mark.skipif(os.name != "posix", reason="a process on Windows inherits no socket by its number")

KEY: Final = "k" * 40
BRIDGE: Final = '[bridge]\nstore = { env = "DATABASE_URL" }\nkeys = [{ env = "BRIDGE_KEY" }]\n'


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens at a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


# The socket


@posix
def test_the_socket_of_a_number_is_taken_and_its_address_is_the_plans(listener: socket.socket) -> None:
    copy = os.dup(listener.fileno())
    with shared_listener(copy, {}) as shared:
        assert shared is not None
        assert shared.listener.getsockname() == listener.getsockname()
        assert shared.listener.proto == socket.IPPROTO_TCP
        assert not os.get_inheritable(shared.listener.fileno())


@posix
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda folder: os.open(folder, os.O_RDONLY), "is no socket"),
        (lambda _: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(), "is no listening TCP socket"),
        (lambda _: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach(), "is no listening TCP socket"),
    ],
)
def test_what_is_no_listening_socket_is_refused_and_stays_open(tmp_path: Path, made: Any, words: str) -> None:
    number = made(tmp_path)
    try:
        with (
            pytest.raises(UsageError, match=f"--fd: descriptor {number} {words}"),
            shared_listener(number, {}),
        ):
            pass
        os.fstat(number)
    finally:
        os.close(number)


@posix
def test_a_number_that_nobody_passed_is_refused() -> None:
    with pytest.raises(UsageError, match="--fd: there is no open descriptor 999"), shared_listener(999, {}):
        pass


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a socket listens")
def test_a_socket_that_does_not_listen_is_refused() -> None:
    with socket.socket() as idle:
        words = f"--fd: descriptor {idle.fileno()} is no listening TCP socket"
        with pytest.raises(UsageError, match=words), shared_listener(idle.fileno(), {}):
            pass


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "0", "LISTEN_PID": "own"},
    ],
)
def test_without_a_socket_for_this_process_there_is_none(environment: dict[str, str]) -> None:
    given = {name: str(os.getpid()) if value == "own" else value for name, value in environment.items()}
    with shared_listener(None, given) as shared:
        assert shared is None


def test_several_sockets_of_systemd_are_refused_and_no_child_sees_its_variables() -> None:
    given = {"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "a:b", "HOME": "/"}
    with (
        pytest.raises(UsageError, match="systemd passes 2 sockets, and the bridge serves one"),
        shared_listener(None, given),
    ):
        pass
    assert given == {"HOME": "/"}


# The plan


SERVER: Final = '[tool_servers.t]\ncommand = ["x"]\n{}\n[tools_as_agent.t]\nfrom = ["t"]\n'


def placed(listener: socket.socket, of_bridge: str, of_server: str = "each_replica = true") -> None:
    text = f"[bridge]\n{of_bridge}\n{SERVER.format(of_server)}"
    plan = plan_from_file(load_text(text, {"DATABASE_URL": "postgresql:///none", "BRIDGE_KEY": KEY}))
    moved = SharedListener(listener, "--fd").placed(plan)
    assert (moved.place.host, moved.place.port) == listener.getsockname()


STORE: Final = 'store = { env = "DATABASE_URL" }\nkeys = [{ env = "BRIDGE_KEY" }]\n'
REPLICA: Final = 'replica_url = "unix:/run/mcp-a2a/1.sock"'


@pytest.mark.parametrize(
    ("of_bridge", "of_server", "words"),
    [
        ("", "", "without PostgreSQL each of them would know other tasks"),
        (STORE, "", "need an address of this process only"),
        (
            STORE + REPLICA,
            "",
            "each of them would start t. Two processes may destroy what a tool server keeps",
        ),
        (
            STORE + 'replica_url = "http://10.0.0.5:9001"',
            "each_replica = true",
            "http://10.0.0.5:9001 is not",
        ),
        (
            STORE + 'replica_url = "https://127.0.0.1:9001"',
            "each_replica = true",
            "the bridge has no certificate",
        ),
    ],
)
def test_what_several_processes_cannot_serve_as_one_is_refused(
    listener: socket.socket, of_bridge: str, of_server: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        placed(listener, of_bridge, of_server)


def test_a_server_that_each_replica_may_start_is_served(listener: socket.socket) -> None:
    placed(listener, STORE + REPLICA)


def test_the_old_key_is_refused_and_the_new_one_is_named() -> None:
    with pytest.raises(UsageError, match="the key is `each_replica` now"):
        load_text(SERVER.format("each_worker = true"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--workers", "4"), "--workers is gone"),
        (("--workers", "1"), "--workers is gone"),
        (("--fd", "999"), "there is no open descriptor 999"),
        (("--fd", "999", "--stdio"), "--stdio opens no port: it does not go with --fd"),
        (("--audit-file", "a.jsonl"), r"--audit-file needs an audit: write a table \[audit\]"),
    ],
)
def test_options_that_cannot_be_are_refused_with_2(
    tmp_path: Path, options: Sequence[str], words: str
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(SERVER.format("") + '[agents_as_tools.t]\nfrom = ["t"]\n')
    done = run_here("serve", str(file), *options, state=tmp_path)
    assert done.returncode == 2
    assert words.replace("\\", "") in done.stderr.replace("\n", " ")


# The address of one process


@posix
@pytest.mark.outside
async def test_a_socket_for_replicas_is_for_this_user_and_is_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    address = ReplicaAddress.parse(f"unix:{path}")
    async with replica_listener(address) as first:
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(UsageError, match=f"cannot listen for the other replicas on {path}"):
            async with replica_listener(address):
                pass
        assert first.getsockname() == str(path)
    assert not path.exists()


@posix
async def test_a_socket_that_a_dead_process_left_behind_gives_way_and_a_file_does_not(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    async with replica_listener(ReplicaAddress.parse(f"unix:{path}")):
        pass
    path.write_text("a file of somebody")
    with pytest.raises(UsageError, match="cannot listen"):
        async with replica_listener(ReplicaAddress.parse(f"unix:{path}")):
            pass
    assert path.read_text() == "a file of somebody"


async def test_an_address_of_http_is_listened_at(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    listener.close()
    async with replica_listener(ReplicaAddress.parse(f"http://{host}:{port}")) as made:
        assert made.getsockname() == (host, port)


# Processes


AS_SYSTEMD: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Starts a command as systemd does: the socket is descriptor 3, and two variables say so."""


@dataclass
class Member:
    """One process of several at one socket."""

    process: subprocess.Popen[str]
    path: Path
    said: Lines

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client of this process alone, at its address for replicas."""
        transport = httpx2.AsyncHTTPTransport(uds=str(self.path))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=WAIT_SECONDS
        ) as made:
            yield made


@dataclass
class Serving:
    """Processes at one socket."""

    port: int
    file: Path
    agent: str
    members: list[Member]

    @asynccontextmanager
    async def client_of(
        self, member: Member, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A client at the common address, whose one connection this process has accepted."""
        scheme = "http" if tls is None else "https"
        others = [one for one in self.members if one is not member and one.process.poll() is None]
        base_url = f"{scheme}://127.0.0.1:{self.port}"
        async with httpx2.AsyncClient(timeout=WAIT_SECONDS, verify=tls or True, base_url=base_url) as client:
            for other in others:
                other.process.send_signal(signal.SIGSTOP)
            await client.get("/healthz")
            for other in others:
                other.process.send_signal(signal.SIGCONT)
            yield client


@contextmanager
def serving(
    folder: Path, number: int = 2, of_bridge: str = "", *, and_tools: bool = False, audited: bool = False
) -> Iterator[Serving]:
    """So many processes that serve one agent of the raw server; its skills are tools, too, if `and_tools` is said.
    `of_bridge` is more of [bridge], and of other tables; `{agent}` in it is the agent. If they are
    `audited`, each has a file for that."""
    agent, file = new_agent(), folder / "bridge.toml"
    command = json.dumps([sys.executable, "-S", "-E", str(RAW_SERVER)])
    tools = f'[agents_as_tools.desk]\nfrom = ["{agent}"]\n' if and_tools else ""
    file.write_text(
        BRIDGE
        + of_bridge.replace("{agent}", agent)
        + f"[tool_servers.tools]\ncommand = {command}\neach_replica = true\n"
        + f'[tools_as_agent.{agent}]\nfrom = ["tools"]\n{tools}'
    )
    env = environment(folder, DATABASE_URL=database_url(), BRIDGE_KEY=KEY)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        members = []
        for index in range(number):
            path = folder / f"{index}.sock"
            serve = [sys.executable, "-P", "-m", "bridge", "serve", str(file), "--log-format", "json"]
            serve += ["--replica-url", f"unix:{path}"]
            serve += ["--audit-file", str(folder / f"audit-{index}.jsonl")] if audited else []
            if index == 0:
                words = [*serve, "--fd", str(listener.fileno())]
            else:
                words = [sys.executable, "-c", AS_SYSTEMD, str(listener.fileno()), *serve]
            process = subprocess.Popen(
                words,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                env=env,
                pass_fds=[listener.fileno()],
            )
            stack.enter_context(process)
            stack.callback(_end, process)
            members.append(Member(process, path, Lines(process, process.stderr)))
        for member in members:
            member.said.until("serving")
        yield Serving(listener.getsockname()[1], file, agent, members)


def _end(process: subprocess.Popen[str]) -> None:
    left = children_of(process.pid)
    if process.poll() is None:
        process.kill()
    process.wait()
    assert gone(left)


ABOUT: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


async def session_at(client: httpx2.AsyncClient) -> dict[str, str]:
    """The headers of a session of 2025-11-25 that was begun over this client's connection."""
    headers = {"Accept": "application/json, text/event-stream"}
    begun = await client.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ABOUT}, headers=headers
    )
    headers |= {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-11-25"}
    done = await client.post(
        "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers
    )
    assert done.status_code == 202
    return headers


LIST: Final = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@posix
@pytest.mark.long
@pytest.mark.anyio
async def test_one_of_four_is_killed_and_no_session_of_the_others_is_lost(tmp_path: Path) -> None:
    with serving(tmp_path, 4, and_tools=True) as bridge:
        first, *others = bridge.members
        async with bridge.client_of(first) as client:
            lost = await session_at(client)
        sessions = []
        for member in others:
            async with bridge.client_of(member) as client:
                sessions.append(await session_at(client))
        first.process.kill()
        first.process.wait()
        # Each session is asked for over a connection of each process that is left.
        for member in others:
            async with bridge.client_of(member) as client:
                for headers in sessions:
                    answer = await client.post("/mcp", json=LIST, headers=headers)
                    assert answer.status_code == 200
                    assert "echo" in answer.text
        with anyio.fail_after(WAIT_SECONDS):
            async with bridge.client_of(others[0]) as client:
                while (await client.post("/mcp", json=LIST, headers=lost)).status_code != 404:
                    await anyio.sleep(0.05)


@posix
@pytest.mark.long
@pytest.mark.anyio
async def test_each_process_takes_a_changed_file_and_refuses_one_with_a_server_that_both_would_start(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as bridge:
        good = bridge.file.read_text()
        bridge.file.write_text(good.replace("each_replica = true\n", ""))
        for member in bridge.members:
            await anyio.to_thread.run_sync(member.said.until, "The file is not applied")
        bridge.file.write_text(f'{good}[tools_as_agent.{bridge.agent}_too]\nfrom = ["tools"]\n')
        for member in bridge.members:
            await anyio.to_thread.run_sync(member.said.until, "read again and taken over")
            async with member.client() as client:
                names = [one["name"] for one in (await client.get("/agents")).json()["agents"]]
                assert names == [bridge.agent, f"{bridge.agent}_too"]
                assert (await client.get("/readyz")).status_code == 200
        for member in bridge.members:
            member.process.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(member.process.wait, WAIT_SECONDS) == 0
            assert not member.path.exists()


GUARDED: Final = """
public_url = "https://127.0.0.1"
trusted_proxies = ["127.0.0.0/8"]
principal_header = "X-User"

[bridge.tls]
certificate = "bridge.pem"
key = "bridge.key"
client_ca = "company.pem"
client_certificate = "optional"

[issuers.corp]
issuer = "ISSUER"
audience.{agent} = ["api://desk"]
scopes.echo = ["echo"]

[principals.bob]
certificate = "subject:CN=bob"
skills = ["add"]

[principals.cy]
forwarded = "cy@example.com"
skills = ["fail"]

"""
EXTENDED: Final = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}


@posix
@pytest.mark.long
@pytest.mark.anyio
async def test_each_process_knows_callers_by_certificate_by_token_and_by_what_a_proxy_says(
    tmp_path: Path,
) -> None:
    authority, issuer = Authority(tmp_path, "company"), TokenIssuer("")
    authority.issues("bridge", x509.IPAddress(ip_address("127.0.0.1")))
    nobody, bob = authority.trusted(), authority.trusted(authority.issues("bob"))
    async with listening(issuer) as issuer.url:
        token, foreign = (
            bearer(issuer.token(audience, scope="echo")) for audience in ("api://desk", "api://x")
        )
        proxied = {"X-User": "cy@example.com"}
        with serving(tmp_path, of_bridge=GUARDED.replace("ISSUER", issuer.url)) as bridge:
            asked: dict[str, tuple[ssl.SSLContext, Mapping[str, str]]] = {
                "a token": (nobody, token),
                "a certificate": (bob, {}),
                "a proxy": (nobody, proxied),
                "a token of another face": (nobody, foreign),
                "nothing": (nobody, {}),
                "a certificate and the token of another": (bob, token),
                "a certificate and a header for another": (bob, proxied),
            }
            for member in bridge.members:
                found: dict[str, list[str] | int] = {}
                for name, (tls, headers) in asked.items():
                    async with bridge.client_of(member, tls) as client:
                        url = f"https://127.0.0.1:{bridge.port}/agents/{bridge.agent}"
                        answer = await client.post(url, json=EXTENDED, headers={**VERSION, **headers})
                    is_let_in = answer.status_code == 200
                    skills = answer.json()["result"]["skills"] if is_let_in else []
                    found[name] = [one["id"] for one in skills] if is_let_in else answer.status_code
                assert found == {
                    "a token": ["echo"],
                    "a certificate": ["add"],
                    "a proxy": ["fail"],
                    "a token of another face": 401,
                    "nothing": 401,
                    "a certificate and the token of another": 401,
                    "a certificate and a header for another": 401,
                }
