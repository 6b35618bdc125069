"""How a file says that a tool server needs a login of the operator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.assembly.plan_from_file import plan_from_file
from bridge.assembly.stores import logins_of
from bridge.config.load import load
from bridge.errors import ConfigError
from bridge.identity.callers.issuers import LoginClient
from bridge.identity.logins.kept_logins import LoginKey
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.logins.login_files import LoginFiles
from bridge.local.user_folders import state_folder
from bridge.mcp.client.transports.streamable_http import HttpTarget
from bridge.store.postgres.login_rows import PostgresLogins

TABLES = """
[tool_servers.crm]
url = "https://crm.example/mcp"
auth = { oauth2 = { grant = "authorization_code" } }
[tool_servers.hrm]
url = "https://hrm.example/mcp"
[tool_servers.hrm.auth.oauth2]
grant = "authorization_code"
issuer = "https://login.example"
client_id = "bridge"
client_secret = { env = "SECRET" }
client_auth = "post"
scopes = ["read"]
resource = ""
pkce = "assume"
[tools_as_agent.desk]
from = ["crm", "hrm"]
"""
GIVEN = {
    "SECRET": "s3cret",
    "KEY": "a key of replicas that has 32 bytes",
    "STORE": "postgresql://u:p@db.example/d",
}


def login_configs(file: Path, text: str) -> list[LoginConfig]:
    """The logins that the servers of a file need."""
    file.write_text(text)
    targets = [one.target for one in plan_from_file(load(file, GIVEN)).servers.values()]
    return [
        one.oauth for one in targets if isinstance(one, HttpTarget) and isinstance(one.oauth, LoginConfig)
    ]


def test_a_file_says_which_login_a_tool_server_needs(tmp_path: Path) -> None:
    keeper = LoginFiles(state_folder())
    found = login_configs(tmp_path / "bridge.toml", TABLES)
    assert found == [
        LoginConfig("https://crm.example/mcp", keeper, "crm"),
        LoginConfig(
            "https://hrm.example/mcp",
            keeper,
            "hrm",
            issuer="https://login.example",
            client_id="bridge",
            secret="s3cret",
            method="post",
            scopes=("read",),
            resource="",
            pkce="assume",
        ),
    ]
    assert [one.keeper for one in found] == [keeper, keeper]
    assert found[0].key == LoginKey("https://crm.example/mcp")
    assert "s3cret" not in repr(found)
    assert "key" not in repr(LoginConfig("https://crm.example/mcp?key=1", keeper).remedy)
    assert "key=1" not in repr(LoginConfig("https://crm.example/mcp?key=1", keeper))


def test_replicas_keep_logins_in_their_database_sealed_with_their_keys(tmp_path: Path) -> None:
    bridge = '[bridge]\nstore = { env = "STORE" }\nkeys = [{ env = "KEY" }]\n'
    for login_config in login_configs(tmp_path / "bridge.toml", bridge + TABLES):
        assert login_config.keeper == PostgresLogins(
            GIVEN["STORE"], (GIVEN["KEY"],), "postgresql://db.example/d"
        )
        assert GIVEN["KEY"] not in repr(login_config.keeper)
        assert "u:p" not in repr(login_config.keeper)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('private_key = { env = "SECRET" }', "`private_key` is not for the grant `authorization_code`"),
        ('client_id = "bridge", client_secret = { env = "SECRET" }', "needs `issuer`"),
        ('issuer = "https://login.example", client_secret = { env = "SECRET" }', "needs `client_id`"),
        ('issuer = "http://login.example"', "takes an https:// URL"),
        ('pkce = "never"', "pkce"),
    ],
)
def test_a_login_that_would_leak_a_secret_is_refused(keys: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(f"""
[tool_servers.crm]
url = "https://crm.example/mcp"
auth = {{ oauth2 = {{ grant = "authorization_code", {keys} }} }}
""")
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, GIVEN)


EACH = """
[bridge]
public_url = "https://bridge.example"
[principals.alice]
bearer = { env = "SECRET" }
[tool_servers.crm]
url = "https://crm.example/mcp"
auth = { oauth2 = { grant = "authorization_code" } }
login = "each"
[tools_as_agent.desk]
from = ["crm"]
"""


def test_a_login_of_each_caller_gives_each_a_session_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    (login_config,) = login_configs(file, EACH)
    plan = plan_from_file(load(file, GIVEN)).servers["crm"]
    assert (login_config.of_each, login_config.link_seconds, plan.settings.session) == (
        True,
        600,
        "principal",
    )
    assert login_config.late_seconds == 600, "as long as a browser may be at the issuer"
    (login_config,) = login_configs(
        file, EACH.replace('"each"', '"each"\nlogin_seconds = 60\nsession = "context"')
    )
    plan = plan_from_file(load(file, GIVEN)).servers["crm"]
    assert (login_config.link_seconds, plan.settings.session) == (60, "context")


EACH_AT_AN_AGENT = (
    EACH.partition("[tool_servers.crm]")[0]
    + """
[agents.clerk]
card = "https://clerk.example"
auth = { oauth2 = { grant = "authorization_code" } }
login = "each"
[agents_as_tools.team]
from = ["clerk"]
"""
)


def test_an_agent_takes_a_login_of_each_caller_too(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(EACH_AT_AN_AGENT)
    (login_config,) = logins_of(plan_from_file(load(file, GIVEN)))
    assert (
        login_config.table,
        login_config.of_each,
        login_config.link_seconds,
        login_config.keep_seconds,
    ) == (
        "agents.clerk",
        True,
        600,
        30 * 86_400,
    )
    file.write_text(EACH_AT_AN_AGENT.replace('"each"', '"each"\nlogin_seconds = 60\nlogin_keep_days = 7'))
    (login_config,) = logins_of(plan_from_file(load(file, GIVEN)))
    assert (login_config.link_seconds, login_config.keep_seconds) == (60, 7 * 86_400)
    for left_out, words in (
        (
            'auth = { oauth2 = { grant = "authorization_code" } }',
            "has no grant with which each caller can log in",
        ),
        ('public_url = "https://bridge.example"', "has no `public_url`"),
    ):
        file.write_text(EACH_AT_AN_AGENT.replace(left_out, ""))
        with pytest.raises(ConfigError, match=re.escape(words)):
            load(file, GIVEN)


def test_an_unused_login_of_a_caller_is_kept_for_30_days_or_as_the_server_says(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    (login_config,) = login_configs(file, EACH)
    assert login_config.keep_seconds == 30 * 86_400
    (login_config,) = login_configs(file, EACH.replace('"each"', '"each"\nlogin_keep_days = 7'))
    assert login_config.keep_seconds == 7 * 86_400


def test_callers_of_an_issuer_log_in_where_the_file_has_a_client_for_it(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    given = '[issuers.corp]\nissuer = "https://login.example"\n'
    _, _, rest = EACH.partition("[principals.alice]\n")
    text = f'[bridge]\npublic_url = "https://bridge.example"\n{given}{rest.partition(chr(10))[2]}'
    more = 'client_secret = { env = "SECRET" }, client_auth = "post"'
    for keys, client in (
        ("", LoginClient("desk")),
        (f", {more}", LoginClient("desk", "s3cret", "post")),
    ):
        login = f'login = {{ client_id = "desk"{keys} }}\n'
        (login_config,) = login_configs(file, text.replace(given, given + login))
        assert login_config.of_each
        assert plan_from_file(load(file, GIVEN)).issuers["corp"].login == client


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('public_url = "https://bridge.example"', "", "has no `public_url`"),
        (
            'auth = { oauth2 = { grant = "authorization_code" } }',
            "",
            "has no grant with which each caller can log in",
        ),
        ("[principals.alice]\nbearer = { env = 'SECRET' }", "", "callers without a credential are one"),
        (
            'bearer = { env = "SECRET" }',
            'certificate = "CN=alice"',
            "nobody can log in with a browser as principals.alice",
        ),
        (
            "[tool_servers.crm]",
            '[issuers.corp]\nissuer = "https://login.example"\n[tool_servers.crm]',
            "nobody can log in with a browser as a principal of issuers.corp",
        ),
        (
            "[tool_servers.crm]",
            '[issuers.corp]\nissuer = "https://login.example"\nprincipal = "client_id"\n'
            'login = { client_id = "bridge" }\n[tool_servers.crm]',
            "`client_id` identifies clients, not people",
        ),
    ],
)
def test_a_login_of_each_caller_that_no_page_could_give_is_refused(
    before: str, after: str, words: str, tmp_path: Path
) -> None:
    file, text = tmp_path / "bridge.toml", EACH.replace("'", '"')
    before = before.replace("'", '"')
    assert before in text
    file.write_text(text.replace(before, after))
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(file, GIVEN)
