"""Where logins are kept: sealed, one holder at a time, in files and in PostgreSQL alike."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import fields, replace
from pathlib import Path

import anyio
import psycopg
import pytest

from bridge.errors import UsageError
from bridge.identity.logins.kept_logins import KeptLogins, Login, LoginKeeper, LoginKey, peer_of
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_records import LoginRecords, login_id
from bridge.seal import RecordSeal
from bridge.store.postgres.login_rows import PostgresLogins
from bridge.store.postgres.table_steps import Namespace
from tests.support.postgres import new_database_url

KEYS = ("a key of replicas that has 32 bytes", "another key that has its 32 bytes")
KEY = LoginKey("https://tools.example/mcp")
LOGIN = Login(
    issuer="https://login.example",
    token_url="https://login.example/token",
    client_id="bridge",
    access_token="access-1",
    refresh_token="refresh-1",
    got_at=1000.0,
    since=900.0,
    expires_at=1060.0,
    scopes=("read", "write"),
)


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.outside)])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> LoginKeeper:
    """A keeper of each kind, without logins."""
    if request.param == "files":
        return LoginFiles(tmp_path, KEYS)
    return PostgresLogins(new_database_url(), KEYS, "a database")


async def put(keeper: LoginKeeper, key: LoginKey, login: Login) -> None:
    async with keeper.held(key) as held:
        await held.write(login)


async def test_a_login_is_found_by_peer_and_principal_alone(keeper: LoginKeeper) -> None:
    alice = LoginKey(KEY.peer, "corp/alice")
    await put(keeper, KEY, LOGIN)
    await put(keeper, alice, other := replace(LOGIN, access_token="access-of-alice"))
    assert await keeper.find(KEY) == LOGIN
    assert await keeper.find(alice) == other
    assert await keeper.find(LoginKey(KEY.peer, "corp/bob")) is None
    assert await keeper.find(LoginKey("https://tools.example/other")) is None
    assert await keeper.all() == KeptLogins([(KEY, LOGIN), (alice, other)])


async def test_a_login_that_was_removed_is_gone(keeper: LoginKeeper) -> None:
    await put(keeper, KEY, LOGIN)
    async with keeper.held(KEY) as held:
        await held.remove()
        assert held.login is None
    assert await keeper.find(KEY) is None
    assert await keeper.all() == KeptLogins([])


async def test_a_login_is_locked_by_one_holder_at_a_time_and_read_again(keeper: LoginKeeper) -> None:
    await put(keeper, KEY, replace(LOGIN, got_at=0.0))
    inside = most = 0

    async def add_one() -> None:
        nonlocal inside, most
        async with keeper.held(KEY) as held:
            inside += 1
            most = max(most, inside)
            assert held.login is not None
            seen = held.login.got_at
            await anyio.lowlevel.checkpoint()
            await held.write(replace(held.login, got_at=seen + 1))
            inside -= 1

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(add_one)
    found = await keeper.find(KEY)
    assert (most, found and found.got_at) == (1, 8.0)


async def test_a_written_login_stays_even_if_its_holder_fails(keeper: LoginKeeper) -> None:
    async def write_and_fail() -> None:
        async with keeper.held(KEY) as held:
            await held.write(LOGIN)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await write_and_fail()
    assert await keeper.find(KEY) == LOGIN


async def test_logins_of_different_peers_are_held_at_the_same_time(keeper: LoginKeeper) -> None:
    with anyio.fail_after(30):
        async with keeper.held(KEY), keeper.held(LoginKey("https://other.example/mcp")):
            pass


async def test_a_login_opens_with_an_older_key_and_not_without_its_key(tmp_path: Path) -> None:
    await put(LoginFiles(tmp_path, KEYS[1:]), KEY, LOGIN)
    assert await LoginFiles(tmp_path, KEYS).find(KEY) == LOGIN
    other = LoginFiles(tmp_path, KEYS[:1])
    with pytest.raises(UsageError, match="was sealed with a key that is missing here"):
        await other.find(KEY)
    assert await other.all() == KeptLogins([], 1)


async def test_files_with_other_keys_have_logins_of_their_own_in_one_folder(tmp_path: Path) -> None:
    one, other = (LoginFiles(tmp_path, (key,)) for key in KEYS)
    await put(one, KEY, LOGIN)
    assert (one.has(KEY), other.has(KEY)) == (True, False)
    async with other.held(KEY) as held:
        assert (held.login, held.is_there) == (None, False)
        await held.write(later := replace(LOGIN, access_token="access-of-the-other"))
    assert (await one.find(KEY), await other.find(KEY)) == (LOGIN, later)
    async with other.held(KEY) as held:
        await held.remove()
    assert await one.find(KEY) == LOGIN


async def test_a_login_moves_to_a_new_key_when_it_is_written(tmp_path: Path) -> None:
    await put(LoginFiles(tmp_path, KEYS[1:]), KEY, LOGIN)
    await put(LoginFiles(tmp_path, KEYS), KEY, LOGIN)
    assert await LoginFiles(tmp_path, KEYS[:1]).all() == KeptLogins([(KEY, LOGIN)])


async def test_a_new_login_overwrites_a_login_that_cannot_be_opened(tmp_path: Path) -> None:
    files = LoginFiles(tmp_path, KEYS)
    await put(files, KEY, LOGIN)
    (file,) = (tmp_path / "logins").glob("*.login")
    file.write_bytes(b"damaged")
    async with files.held(KEY) as held:
        assert (held.login, held.is_there) == (None, True)
        await held.write(LOGIN)
    assert await files.find(KEY) == LOGIN


async def test_only_the_owner_can_read_login_files_and_they_hold_no_plain_token(tmp_path: Path) -> None:
    await put(LoginFiles(tmp_path), KEY, LOGIN)
    (file,) = (tmp_path / "logins").glob("*.login")
    assert file.name.startswith(f"{login_id(KEY)}-")
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for word in (b"access", b"refresh", b"tools.example"):
        assert word not in file.read_bytes()


async def test_a_file_in_the_place_of_another_login_does_not_open(tmp_path: Path) -> None:
    files, bob = LoginFiles(tmp_path), LoginKey(KEY.peer, "corp/bob")
    await put(files, KEY, LOGIN)
    (file,) = (tmp_path / "logins").glob("*.login")
    shutil.copy(file, file.with_name(file.name.replace(login_id(KEY), login_id(bob))))
    with pytest.raises(UsageError, match="or is damaged"):
        await files.find(bob)


@pytest.mark.outside
async def test_rows_of_logins_hold_no_token_in_plain() -> None:
    keeper = PostgresLogins(new_database_url(), KEYS, "a database")
    await put(keeper, KEY, LOGIN)
    async with await psycopg.AsyncConnection.connect(keeper.url) as connection:
        found = await connection.execute(Namespace.of_logins().sql("SELECT id, sealed FROM {ns}.logins"))
        ((name, sealed),) = await found.fetchall()
    assert name == login_id(KEY)
    assert b"access" not in bytes(sealed)
    assert b"refresh" not in bytes(sealed)


def test_a_peer_is_its_url_without_user_and_fragment() -> None:
    assert (
        peer_of("https://tools.example") == peer_of("https://tools.example/#top") == "https://tools.example/"
    )
    assert peer_of("HTTPS://user:word@Tools.example/MCP?key=1#top") == "https://tools.example/MCP?key=1"
    assert LoginKey("https://tools.example/mcp?key=1").url == "https://tools.example/mcp"


def test_a_stored_login_omits_defaults_so_that_an_older_release_can_open_it() -> None:
    records = LoginRecords([b"x" * 32])
    sealed = records.sealed("row", KEY, LOGIN)
    said = json.loads(RecordSeal([b"x" * 32], "login").open(sealed, b"row"))["login"]
    later = {"lost", "refresh_url", "used_at", "declined_at", "vouched_by"}
    unsaid = {"client_secret", "client_auth", "wanted_scopes", "resource", "allow_private", "renewing_since"}
    assert {one.name for one in fields(Login)} - said.keys() == unsaid | later
    assert records.opened("row", sealed) == (KEY, LOGIN)
    whole = replace(LOGIN, refresh_url="https://login.example/renew", used_at=1.0, wanted_scopes=("more",))
    whole = replace(whole, declined_at=2.0, vouched_by="sub of https://login.example")
    assert records.opened("row", records.sealed("row", KEY, whole)) == (KEY, whole)
