"""`mcp-a2a login`, `logins` and `logout`, with a browser of a script."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from bridge.assembly.plan_from_file import plan_from_file
from bridge.assembly.stores import logins_of
from bridge.cli.login.login import open_in_browser
from bridge.config.load import load
from bridge.identity.logins.kept_logins import Login, LoginKey, peer_of
from bridge.identity.logins.login_files import LoginFiles
from tests.support.command import run_command, run_here
from tests.support.login_agent import LoginAgent
from tests.support.login_server import METADATA, LoginServer
from tests.support.ports import free_port

BROWSER = """
import sys, urllib.request
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1]).read().decode())
"""
LOGIN = Login(
    issuer="https://login.example",
    token_url="https://login.example/token",
    client_id="bridge",
    access_token="access-1",
    refresh_token="refresh-1",
    got_at=1_700_000_000.0,
    since=1_600_000_000.5,
    expires_at=1_700_003_600.0,
    scopes=("read", "write"),
    wanted_scopes=("delete",),
)


def bridge_file(folder: Path, url: str) -> None:
    """A file with a server that needs a login, and one that needs none."""
    (folder / "bridge.toml").write_text(f"""
[tool_servers.crm]
url = "{url}"
auth = {{ oauth2 = {{ grant = "authorization_code" }} }}
[tool_servers.plain]
url = "{url}"
[tools_as_agent.desk]
from = ["crm"]
""")


def keep(state: Path, url: str, login: Login, principal: str = "") -> None:
    """Keep a login as the commands find it."""

    async def write() -> None:
        async with LoginFiles(state / "mcp-a2a").held(LoginKey(url, principal)) as held:
            await held.write(login)

    anyio.run(write)


@pytest.mark.outside
@pytest.mark.parametrize("by", ["name", "url"])
async def test_a_person_logs_in_with_a_browser(by: str, tmp_path: Path) -> None:
    server = LoginServer()
    (browser := tmp_path / "browser.py").write_text(BROWSER)

    async with server.serve() as url:
        bridge_file(tmp_path, url)
        words = [url] if by == "url" else ["crm", str(tmp_path / "bridge.toml")]

        def run() -> subprocess.CompletedProcess[str]:
            return run_command("login", *words, state=tmp_path, BROWSER=f"{sys.executable} {browser} %s")

        done = await anyio.to_thread.run_sync(run)
        kept = await LoginFiles(tmp_path / "mcp-a2a").find(LoginKey(url))
    assert done.returncode == 0, done.stderr
    assert f"Logged in at {url}, with {server.issuer}." in done.stderr + done.stdout
    assert kept is not None
    assert (kept.access_token, kept.refresh_token) == ("access-2", "refresh-2")
    assert "access-2" not in done.stdout + done.stderr


READS_ARGUMENTS = """
import json, pathlib, sys
pathlib.Path(__file__).with_name("arguments").write_text(json.dumps(sys.argv[1:]))
"""


def hostile(folder: Path) -> str:
    """A query that a shell would take for commands, which make a file in a folder."""
    make = f"touch${{IFS}}{folder}/made"
    return f"x=$({make});{make}&{make}"


@pytest.mark.outside
async def test_a_page_reaches_the_browser_as_one_word_that_no_shell_reads(tmp_path: Path) -> None:
    server = LoginServer()
    (browser := tmp_path / "browser.py").write_text(READS_ARGUMENTS + BROWSER)
    async with server.serve() as url:
        place = f"{server.issuer}/authorize?{hostile(tmp_path)}&z=1"
        server.metadata["authorization_endpoint"] = place
        run = partial(run_command, "login", url, state=tmp_path, BROWSER=f"{sys.executable} {browser} %s")
        done = await anyio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr
    (page,) = json.loads((tmp_path / "arguments").read_text())
    assert page.startswith(f"{place}&response_type=code&")
    assert not (tmp_path / "made").exists()


@pytest.mark.outside
@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@pytest.mark.parametrize(("code", "is_opened"), [(0, True), (1, False)])
def test_on_a_mac_a_page_reaches_the_opener_as_one_word_and_its_end_says_whether_it_was_opened(
    code: int, is_opened: bool, tmp_path: Path
) -> None:
    opener = tmp_path / "open"
    opener.write_text(f"#!{sys.executable}\n{READS_ARGUMENTS}\nsys.exit({code})\n")
    opener.chmod(0o700)
    page = f"https://login.example/authorize?{hostile(tmp_path)}&z=1"
    assert open_in_browser(page, "darwin", str(opener)) is is_opened
    assert json.loads((tmp_path / "arguments").read_text()) == [page]


@pytest.mark.outside
def test_a_mac_without_an_opener_opens_nothing(tmp_path: Path) -> None:
    assert not open_in_browser("https://login.example", "darwin", str(tmp_path / "none"))


EXPIRED = {"got_at": 0.0, "expires_at": 60.0}
UNUSABLE: dict[str, tuple[dict[str, Any] | None, bool, str]] = {
    "missing": (None, False, "login needed at PEER: nobody has logged in. Run `mcp-a2a login NAME`"),
    "refused": (EXPIRED, True, "login needed at PEER: ISSUER renewed no token: invalid_grant: revoked. Run"),
    "expired": (
        {**EXPIRED, "refresh_token": None},
        False,
        "login needed at PEER: the access token has expired, and ISSUER gave no refresh token. Run",
    ),
    "another issuer": (
        {"issuer": "https://old.example"},
        False,
        "login needed at PEER: the login is at https://old.example, but the configuration names ISSUER. Run",
    ),
    "issuer down": ({**EXPIRED, "token_url": "DOWN"}, False, "DOWN cannot be reached for a token: "),
}
"""What a login lacks, whether its family was revoked, and how `check` says it."""


@pytest.mark.outside
@pytest.mark.parametrize("kind", UNUSABLE)
async def test_check_shows_why_a_login_gives_no_token(kind: str, tmp_path: Path) -> None:
    changes, is_revoked, words = UNUSABLE[kind]
    issuer, state = LoginServer(revoked=is_revoked), tmp_path / "state"
    agent = LoginAgent(lambda: issuer.given)
    async with issuer.serve() as url, agent.serve() as card:
        down = f"http://127.0.0.1:{free_port()}/token"
        auth = f'{{ oauth2 = {{ grant = "authorization_code", issuer = "{issuer.issuer}" }} }}'
        file = tmp_path / "bridge.toml"
        file.write_text(f"""
[tool_servers.crm]
url = "{url}"
auth = {auth}
[agents.bot]
card = "{card}"
allow_private = true
auth = {auth}
[tools_as_agent.desk]
from = ["crm"]
[agents_as_tools.team]
from = ["bot"]
""")
        peers = {"crm": url, "bot": f"{card}/"}
        if changes is not None:
            made = replace(
                LOGIN, issuer=issuer.issuer, token_url=f"{issuer.issuer}/token", allow_private=True
            )
            made = replace(made, **{k: down if one == "DOWN" else one for k, one in changes.items()})
            for peer in peers.values():
                async with LoginFiles(state / "mcp-a2a").held(LoginKey(peer)) as held:
                    await held.write(made)
        if kind == "issuer down":
            file.write_text(
                file.read_text().replace(f'url = "{url}"', f'url = "{url}"\nallow_private = true')
            )
        done = await anyio.to_thread.run_sync(partial(run_here, "check", str(file), state=state))
    said = " ".join(done.stdout.split())
    assert done.returncode == 1, said
    for name, peer in peers.items():
        wanted = words.replace("PEER", peer).replace("NAME", name).replace("DOWN", down)
        assert wanted.replace("ISSUER", issuer.issuer) in said
    for secret in ("access-1", "refresh-1"):
        assert secret not in done.stdout + done.stderr


def test_logins_are_listed_without_a_token(tmp_path: Path) -> None:
    keep(tmp_path, "https://crm.example/mcp?key=s3cret", LOGIN)
    done = run_here("logins", state=tmp_path, folder=tmp_path)
    assert done.stdout.splitlines() == [
        "https://crm.example/mcp",
        "  issuer: https://login.example",
        "  scopes: read write",
        "  the next login also asks for: delete",
        "  since: 2020-09-13T12:26:40Z",
        "  access token: expires 2023-11-14T23:13:20Z",
        "  refresh token: yes",
    ]
    listed = run_here("logins", "--json", state=tmp_path, folder=tmp_path).stdout
    assert json.loads(listed) == {
        "where": str(tmp_path / "mcp-a2a" / "logins"),
        "logins": [
            {
                "server": "https://crm.example/mcp",
                "principal": None,
                "issuer": "https://login.example",
                "scopes": ["read", "write"],
                "wantedScopes": ["delete"],
                "since": "2020-09-13T12:26:40Z",
                "expires": "2023-11-14T23:13:20Z",
                "hasRefreshToken": True,
                "lost": None,
            }
        ],
    }
    for word in ("access-1", "refresh-1", "s3cret"):
        assert word not in done.stdout + done.stderr + listed


def test_a_token_that_expires_after_the_last_date_is_listed(tmp_path: Path) -> None:
    keep(tmp_path, "https://crm.example/mcp", replace(LOGIN, expires_at=1_700_000_000.0 + 2**63))
    done = run_here("logins", state=tmp_path, folder=tmp_path)
    assert "  access token: expires 9999-12-31T23:59:59Z" in done.stdout.splitlines(), done.stderr


@pytest.mark.outside
@pytest.mark.parametrize(
    ("refused", "names", "ends"),
    [
        ("", True, ", and its tokens are revoked\n"),
        (
            "access_token",
            True,
            "\nNot all its tokens are revoked: ISSUER did not revoke the access token: unsupported_token_type\n",
        ),
        ("", False, f"\nNot all its tokens are revoked: ISSUER{METADATA} names no revocation_endpoint\n"),
    ],
)
async def test_a_logout_revokes_the_tokens_and_forgets_the_login_all_the_same(
    refused: str, names: bool, ends: str, tmp_path: Path
) -> None:
    server = LoginServer(refuses_back=refused)
    async with server.serve() as url:
        server.metadata = {"revocation_endpoint": f"{server.issuer}/revoke"} if names else {}
        bridge_file(tmp_path, url)
        files, key = LoginFiles(tmp_path / "mcp-a2a"), LoginKey(url)
        async with files.held(key) as held:
            await held.write(replace(LOGIN, issuer=server.issuer, token_url=f"{server.issuer}/token"))

        def run(peer: str) -> subprocess.CompletedProcess[str]:
            return run_here("logout", peer, state=tmp_path, folder=tmp_path)

        done = await anyio.to_thread.run_sync(run, "crm")
        again = await anyio.to_thread.run_sync(run, url)
        said = (done.stderr + done.stdout).replace(server.issuer, "ISSUER")
        assert (done.returncode, said) == (0, f"forgotten: the login at ISSUER/mcp{ends}")
        assert await files.find(key) is None
        assert (again.returncode, "there is no login at" in again.stderr) == (2, True)
    kinds = {"refresh_token": "refresh-1", "access_token": "access-1"} if names else {}
    assert server.given_back == [
        {"token": token, "token_type_hint": kind, "client_id": "bridge"} for kind, token in kinds.items()
    ]


def test_a_logout_of_one_caller_leaves_the_logins_of_the_others(tmp_path: Path) -> None:
    bridge_file(tmp_path, "https://crm.example/mcp")
    keep(tmp_path, "https://crm.example/mcp", LOGIN)
    keep(tmp_path, "https://crm.example/mcp", LOGIN, "alice")
    leave = ["logout", "crm", "--principal", "alice"]
    done = run_here(*leave, state=tmp_path, folder=tmp_path)
    assert done.stderr.splitlines()[0] == "forgotten: the login of alice at https://crm.example/mcp"
    again = run_here(*leave, state=tmp_path, folder=tmp_path)
    assert "there is no login of alice at https://crm.example/mcp" in again.stderr
    left = json.loads(run_here("logins", "--json", state=tmp_path, folder=tmp_path).stdout)["logins"]
    assert [one["principal"] for one in left] == [None]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plain"], "tool_servers.plain needs no login"),
        (["cmr"], "there is no [tool_servers.cmr], [agents.cmr] or [catalogs.cmr]: did you mean"),
        (["crm", "--issuer", "https://login.example"], "--issuer is for a URL"),
    ],
)
def test_a_login_that_nobody_needs_is_refused(words: list[str], says: str, tmp_path: Path) -> None:
    bridge_file(tmp_path, "https://crm.example/mcp")
    done = run_here("login", *words, state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())


AGENTS = """
[agents.crm]
card = "https://agent.example/.well-known/agent-card.json"
auth = { oauth2 = { grant = "authorization_code" } }
[agents.desk]
card = "https://desk.example/.well-known/agent-card.json"
auth = { oauth2 = { grant = "authorization_code" } }
"""


def test_the_login_at_an_agent_is_forgotten_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "bridge.toml").write_text(AGENTS)
    login = replace(LOGIN, issuer="http://127.0.0.1:9", refresh_token=None)
    keep(tmp_path, "https://desk.example/", login)
    done = run_here("logout", "desk", state=tmp_path, folder=tmp_path)
    assert done.returncode == 0
    assert "forgotten: the login at https://desk.example/" in done.stderr
    again = run_here("logout", "desk", state=tmp_path, folder=tmp_path)
    assert "there is no login at https://desk.example/" in again.stderr


OF_EACH_AT_AN_AGENT = """
[bridge]
public_url = "https://bridge.example"
[principals.alice]
bearer = { env = "TOKEN" }
[agents.clerk]
card = "https://clerk.example"
auth = { oauth2 = { grant = "authorization_code" } }
login = "each"
[agents_as_tools.team]
from = ["clerk"]
"""


def test_the_login_of_a_caller_at_an_agent_is_forgotten_by_its_name_and_made_by_nobody_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "bridge.toml").write_text(OF_EACH_AT_AN_AGENT)
    keep(tmp_path, "https://clerk.example/", replace(LOGIN, issuer="http://127.0.0.1:9"), "alice")
    there: dict[str, Any] = {"state": tmp_path, "folder": tmp_path, "TOKEN": "the-token-of-alice"}
    login = run_here("login", "clerk", **there)
    assert login.returncode == 2
    words = "agents.clerk uses a login of each caller, and a caller gets a link to log in with a call"
    assert words in " ".join(login.stderr.split())
    done = run_here("logout", "clerk", "--principal", "alice", **there)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        0,
        "forgotten: the login of alice at https://clerk.example/",
    )
    again = run_here("logout", "clerk", "--principal", "alice", **there)
    assert "there is no login of alice at https://clerk.example/" in again.stderr


def test_a_name_that_a_server_and_an_agent_have_asks_for_the_url(tmp_path: Path) -> None:
    bridge_file(tmp_path, "https://crm.example/mcp")
    file = tmp_path / "bridge.toml"
    file.write_text(file.read_text() + AGENTS)
    done = run_here("login", "crm", state=tmp_path, folder=tmp_path)
    assert done.returncode == 2
    words = " ".join(done.stderr.split())
    assert "there are [tool_servers.crm] and [agents.crm]: name one by its URL" in words


def test_the_file_that_wrap_and_expose_print_says_that_the_login_is_used(tmp_path: Path) -> None:
    for command, url in {"wrap": "https://crm.example/mcp", "expose": "https://agent.example"}.items():
        words = (command, "--print-toml", url)
        before = run_here(*words, state=tmp_path, folder=tmp_path).stdout
        keep(tmp_path, peer_of(url), LOGIN)
        after = run_here(*words, state=tmp_path, folder=tmp_path).stdout
        assert "authorization_code" not in before
        (table,) = tomllib.loads(after)["tool_servers" if command == "wrap" else "agents"].values()
        assert table["auth"] == {"oauth2": {"grant": "authorization_code"}}
        file = tmp_path / f"{command}.toml"
        file.write_text(after)
        (needed,) = logins_of(plan_from_file(load(file, {})))
        assert needed.key == LoginKey(peer_of(url))
