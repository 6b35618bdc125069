"""A file that is as it should be: what its values come to, and where they come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.config.load import LoadedConfig, SettingOverride, load
from bridge.config.tables.models import (
    ArgumentTable,
    BridgeTable,
    Config,
    KeyPlace,
    Secret,
    SkillTable,
    ToolServerTable,
)
from bridge.config.tables.profile import load_profile
from bridge.config.text.document import ValueSource
from bridge.config.toml_text import ShownValue, shown_values, toml_value
from bridge.errors import ConfigError, UsageError

TOKEN = "T0k3n-of-somebody"
ENVIRONMENT = {"TOKEN": TOKEN, "OTHER": "another"}

FILE = """\
[bridge]
host = "0.0.0.0"
port = 9000
public_url = "https://bridge.example.com/prefix/"
store = "sqlite:///data/bridge.db"
keys = [{ file = "handle.key" }, { env = "OTHER" }]
hosts = ["Bridge.Example.Com"]
mapping = "mine.toml"
log_level = "debug"

[tool_servers.github]
command = ["npx", "-y", "server"]
env = { GITHUB_TOKEN = { env = "TOKEN" }, MODE = "quiet", API_TOKEN = "in plain" }
cwd = "work"
[tool_servers.weather]
url = "https://weather.example.com/mcp"
headers = { X-Tenant = "blue", X-Key = { file = "secret" } }
auth = { bearer = { env = "TOKEN" } }
call_timeout_seconds = 20

[import]
mcp_json = "hosts/mcp.json"

[agents.research]
card = "https://research.example.com"
auth = { bearer = { env = "TOKEN" }, api_key = { file = "secret" } }
trust = ["https://other.example.com/"]

[catalogs.partners]
url = "https://partner.example/agents"
auth = { api_key = { header = "X-Api-Key", value = { env = "TOKEN" } } }

[tools_as_agent.devtools]
from = ["github", "git-hub"]
mapping = "mine.toml"
fail = "open"
skills.create_issue = { name = "Open", tags = ["new"], text_into = "title", arguments.labels.default = ["a"] }
skills."delete_*" = { hidden = true }

[agents_as_tools.team]
from = ["research", "partners", "devtools"]
tools."*" = { task_after_seconds = 0 }

[principals.alice]
bearer = { env = "TOKEN" }
skills = ["devtools/create_*", "team/*", "echo"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for name in ("work", "hosts"):
        (tmp_path / name).mkdir()
    (tmp_path / "bridge.toml").write_text(FILE)
    (tmp_path / "secret").write_text("of a file\n")
    (tmp_path / "mine.toml").write_text('extends = "default"\n[run]\nqueue = 7\n')
    (tmp_path / "hosts" / "mcp.json").write_text('{"mcpServers": {"Git Hub": {"command": "uvx"}}}')
    return tmp_path / "bridge.toml"


@pytest.fixture
def loaded(path: Path) -> LoadedConfig:
    return load(path, ENVIRONMENT)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    loaded = load(tmp_path / "empty.toml", {})
    assert loaded.config == Config()
    assert loaded.bridge_profile == load_profile()


def test_relative_paths_start_in_the_folder_of_the_file(loaded: LoadedConfig, path: Path) -> None:
    bridge = loaded.config.bridge
    assert bridge.store == str(path.parent / "data" / "bridge.db")
    assert bridge.keys[0] == KeyPlace(file=path.parent / "handle.key")
    assert loaded.config.imports.mcp_json == (path.parent / "hosts" / "mcp.json",)
    assert loaded.config.tool_servers["github"].cwd == path.parent / "work"
    assert loaded.config.tool_servers["weather"].cwd == path.parent


def test_a_relative_file_is_read_from_the_current_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent / "work")
    loaded = load(Path("../bridge.toml"), ENVIRONMENT)
    assert loaded.config.tool_servers["git-hub"].command == ("uvx",)
    assert loaded.sources.of(("bridge", "port")) == ValueSource("file", "../bridge.toml:3")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "secret").write_text(f"{TOKEN}\n")
    file = tmp_path / "below" / "a.toml"
    file.parent.mkdir()
    file.write_text('[bridge]\nstore = "~/a.db"\n[principals.a]\nbearer = { file = "~/secret" }\n')
    config = load(file, {}).config
    assert config.bridge.store == str(tmp_path / "a.db")
    assert config.principals["a"].bearer == Secret(TOKEN, f"file:{tmp_path / 'secret'}", tmp_path / "secret")


@pytest.mark.parametrize(
    ("written", "store"),
    [("memory:", "memory:"), ("a.db", "a.db"), ("sqlite:///a.db", "a.db"), ("./memory", "memory")],
)
def test_a_store_is_memory_or_a_file(written: str, store: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f'[bridge]\nstore = "{written}"\n')
    found = load(tmp_path / "a.toml", {}).config.bridge.store
    assert found == (store if store == "memory:" else str(tmp_path / store))


@pytest.mark.proves("config-secrets")
def test_names_of_agents_cannot_differ_only_in_case(tmp_path: Path) -> None:
    path = tmp_path / "bridge.toml"
    path.write_text(
        "[tool_servers.raw]\ncommand = ['raw']\n"
        "[tools_as_agent.files]\nfrom = ['raw']\n[tools_as_agent.Files]\nfrom = ['raw']\n"
    )
    with pytest.raises(ConfigError, match="`Files` is not a table name: small letters"):
        load(path, {})


def test_secrets_are_read_and_known_by_their_reference_only(loaded: LoadedConfig) -> None:
    servers = loaded.config.tool_servers
    assert servers["github"].variables() == {"GITHUB_TOKEN": TOKEN, "MODE": "quiet", "API_TOKEN": "in plain"}
    assert servers["weather"].request_headers() == {
        "X-Tenant": "blue",
        "X-Key": "of a file",
        "Authorization": f"Bearer {TOKEN}",
    }
    assert loaded.config.catalogs["partners"].request_headers() == {"X-Api-Key": TOKEN}
    for said in (repr(loaded), repr(loaded.config), str(loaded.config)):
        assert not any(secret in said for secret in (TOKEN, "of a file", "in plain", "another"))


def test_overrides_keep_the_order_of_the_file(loaded: LoadedConfig) -> None:
    skills = loaded.config.tools_as_agent["devtools"].skills
    assert list(skills) == ["create_issue", "delete_*"]
    assert skills["create_issue"] == SkillTable(
        name="Open", tags=("new",), text_into="title", arguments={"labels": ArgumentTable(default=["a"])}
    )


def test_a_hidden_argument_may_have_its_default_from_another_override(path: Path) -> None:
    hidden = 'skills."*".arguments.labels.hidden = true\nskills."delete_*" = '
    path.write_text(FILE.replace('skills."delete_*" = ', hidden))
    assert load(path, ENVIRONMENT).config.tools_as_agent["devtools"].skills["*"].arguments["labels"].hidden


def test_values_are_normalised(loaded: LoadedConfig) -> None:
    assert loaded.config.bridge.public_url == "https://bridge.example.com/prefix"
    assert loaded.config.bridge.hosts == ("bridge.example.com",)
    assert loaded.config.agents["research"].trust == ("https://other.example.com",)


def test_each_face_has_its_profile(loaded: LoadedConfig) -> None:
    assert loaded.profile_of(loaded.config.tools_as_agent["devtools"]).run.queue == 7
    assert loaded.profile_of(loaded.config.agents_as_tools["team"]).run.queue == load_profile().run.queue
    assert loaded.bridge_profile.run.queue == 7


def test_every_file_that_was_read_is_known(loaded: LoadedConfig, path: Path) -> None:
    names = {file.name for file in loaded.files}
    assert names == {"bridge.toml", "bridge.lock", "mine.toml", "default.toml", "mcp.json", "secret"}
    assert all(file.is_absolute() for file in loaded.files)


def test_two_readings_are_equal_unless_something_changed(loaded: LoadedConfig, path: Path) -> None:
    assert load(path, ENVIRONMENT) == loaded
    assert load(path, {**ENVIRONMENT, "TOKEN": "new"}).config != loaded.config
    (path.parent / "secret").write_text("new")
    after = load(path, ENVIRONMENT).config
    assert after.agents != loaded.config.agents
    assert after.bridge == loaded.config.bridge


def test_each_value_has_its_source(loaded: LoadedConfig, path: Path) -> None:
    sources = loaded.sources
    assert str(sources.of(("bridge", "port"))) == f"file {path}:3"
    assert str(sources.of(("bridge", "log_format"))) == "default"
    host = path.parent / "hosts" / "mcp.json"
    assert sources.of(("tool_servers", "git-hub", "command")) == ValueSource("file", f"{host}:1")


@pytest.mark.proves("config-sources")
def test_the_command_line_and_the_environment_come_before_the_file(loaded: LoadedConfig) -> None:
    changed = loaded.given(
        port=SettingOverride(1234, "--port"),
        store=SettingOverride("other.db", "MCP_A2A_SERVE_STORE"),
        mapping=SettingOverride("default", "--mapping"),
    )
    assert (changed.config.bridge.port, changed.config.bridge.host) == (1234, "0.0.0.0")
    assert changed.config.bridge.store == str(Path.cwd() / "other.db")
    assert changed.bridge_profile == load_profile()
    assert changed.sources.of(("bridge", "port")) == ValueSource("command line", "--port")
    assert changed.sources.of(("bridge", "store")) == ValueSource("environment", "MCP_A2A_SERVE_STORE")
    assert changed.config.bridge.keys == loaded.config.bridge.keys
    assert loaded.config.bridge.port == 9000


def test_replicas_that_share_a_file_have_their_own_addresses_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text("[bridge]\nstore = { env = 'DATABASE_URL' }\nkeys = [{ env = 'BRIDGE_KEY' }]\n")
    loaded = load(file, {"DATABASE_URL": "postgresql://bridge:secret@db/tasks", "BRIDGE_KEY": "k" * 32})
    variable = "MCP_A2A_SERVE_REPLICA_URL"
    changed = loaded.given(replica_url=SettingOverride("http://10.0.0.1:8080/", variable))
    assert changed.config.bridge.replica_url == "http://10.0.0.1:8080"
    assert changed.sources.of(("bridge", "replica_url")) == ValueSource("environment", variable)


def test_a_profile_that_the_command_line_names_is_found_from_the_current_folder(
    loaded: LoadedConfig, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent / "work")
    Path("mine.toml").write_text('extends = "default"\n[run]\nqueue = 1\n')
    assert loaded.given(mapping=SettingOverride("mine.toml", "--mapping")).bridge_profile.run.queue == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"port": SettingOverride(70000, "--port")}, "--port takes 0 to 65535, not 70000"),
        ({"store": SettingOverride("memory", "--store")}, '--store takes "memory:", .*; write "memory:"'),
        ({"mapping": SettingOverride("nope", "--mapping")}, "there is no mapping profile 'nope'"),
        ({"colour": SettingOverride("red", "--colour")}, "--colour: unknown key `colour`"),
        (
            {"replica_url": SettingOverride("http://10.0.0.1", "--replica-url")},
            "--replica-url is for a `store`",
        ),
    ],
)
def test_a_wrong_value_of_the_command_line_names_its_option(
    changes: dict[str, SettingOverride], said: str, loaded: LoadedConfig
) -> None:
    with pytest.raises(UsageError, match=said):
        loaded.given(**changes)


@pytest.mark.proves("config-sources", "config-secrets")
def test_everything_is_shown_with_its_source_and_without_secrets(loaded: LoadedConfig, path: Path) -> None:
    rows = {row.path: row for row in shown_values(loaded)}
    assert rows["bridge.port"] == ShownValue("bridge.port", "9000", ValueSource("file", f"{path}:3"))
    assert rows["bridge.log_format"] == ShownValue("bridge.log_format", '"text"', ValueSource("default"))
    assert rows["tool_servers.github.env"].value == '{ GITHUB_TOKEN = { env = "TOKEN" }, MODE = "quiet" }'
    hidden = rows["tool_servers.github.env.API_TOKEN"]
    assert (hidden.value, hidden.is_whole) == ('"***"', False)
    assert rows["tools_as_agent.devtools.from"].value == '["github", "git-hub"]'
    mine = ValueSource("profile", f"{path.parent / 'mine.toml'}:3")
    assert rows["tools_as_agent.devtools.mapping.run.queue"] == ShownValue(
        "tools_as_agent.devtools.mapping.run.queue", "7", mine
    )
    assert rows["agents_as_tools.team.mapping.run.queue"].source == ValueSource("default")
    assert "bridge.mapping.server.fail" in rows
    assert "bridge.mapping.run.queue" not in rows
    said = repr(rows)
    assert not any(secret in said for secret in (TOKEN, "of a file", "in plain", "another"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a "b" \\ \n\x7f\u4e2d', '"a \\"b\\" \\\\ \\n\\u007f\u4e2d"'),
        ({"a b": 1, "c-d": [True, 0.5]}, '{ "a b" = 1, c-d = [true, 0.5] }'),
        ({}, "{}"),
        (Secret("x", "env:A"), '{ env = "A" }'),
        (Secret("x", "mcp.json:3"), '"***"'),
        (KeyPlace(env=Secret("x", "env:A")), '{ env = "A" }'),  # type: ignore[call-arg]
        ((KeyPlace(file=Path("/k")),), '[{ file = "/k" }]'),
    ],
)
def test_values_are_shown_as_toml(value: object, text: str) -> None:
    assert toml_value(value) == text


def test_tables_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        BridgeTable().port = 1  # type: ignore[misc]


def test_reading_a_configuration_does_not_import_the_mcp_sdk(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bridge.config.load import load; "
        f"load(Path({str(path)!r}), {ENVIRONMENT!r}); "
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'httpx2', 'starlette')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_file_that_refers_to_nothing_is_refused_and_nothing_else(path: Path) -> None:
    path.write_text(FILE.replace("TOKEN", "GONE"))
    with pytest.raises(ConfigError) as refused:
        load(path, ENVIRONMENT)
    assert {one.message for one in refused.value.diagnostics} == {"the environment variable GONE is not set"}


def test_a_table_can_be_made_by_a_program_too(tmp_path: Path) -> None:
    server = ToolServerTable(command=("a",), cwd=tmp_path, env={"A": Secret("b", "env:B")})
    assert (server.cwd, server.variables()) == (tmp_path, {"A": "b"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bridge]\nmapping = '{long}'\n", "there is no mapping profile '{long}'"),
        ("[bridge]\nmapping = './{long}'\n", "cannot read the mapping profile"),
        ("[tool_servers.a]\ncommand = ['a']\ncwd = '{long}'\n", "there is no folder"),
        ("[import]\nmcp_json = '{long}'\n", "there is no file"),
        ("[principals.a]\nbearer = {{ file = '{long}' }}\n", "cannot read the secret in"),
    ],
)
@pytest.mark.parametrize("length", [300, 5000])
def test_a_path_that_is_too_long_counts_as_missing(
    text: str, message: str, length: int, tmp_path: Path
) -> None:
    long = "a" * length
    (tmp_path / "a.toml").write_text(text.format(long=long))
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "a.toml", {})
    (one,) = refused.value.diagnostics
    assert one.message.startswith(message.format(long=long))


def test_a_file_may_have_the_line_ends_of_windows(path: Path, loaded: LoadedConfig) -> None:
    path.write_text(FILE, newline="\r\n")
    assert load(path, ENVIRONMENT) == loaded


def test_queries_of_urls_are_not_in_the_text_of_a_configuration(tmp_path: Path) -> None:
    tables = (
        "[tool_servers.a]\nurl = 'https://a.example/mcp?key=hidden'\n"
        "[agents.b]\ncard = 'https://b.example/?key=hidden'\n"
        "[catalogs.c]\nurl = 'https://c.example/agents#hidden'\n"
    )
    (tmp_path / "a.toml").write_text(tables)
    loaded = load(tmp_path / "a.toml", {})
    assert "https://a.example/mcp" in repr(loaded)
    assert "hidden" not in repr(loaded) + repr(shown_values(loaded))


def test_urls_of_variables_headers_and_nested_tables_are_shown_without_possible_secrets(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.toml").write_text(
        "[tool_servers.a]\ncommand = ['psql']\n"
        "env = { DATABASE_URL = 'postgres://me:hidden@db/notes', SMTP_PASS = 'hidden', PATHS = 'a:b' }\n"
        "[tool_servers.b]\nurl = 'https://b.example/mcp'\n"
        "headers = { Referer = 'https://a.example/?sig=hidden', X-Team = 'blue' }\n"
        "[tool_servers.b.auth.oauth2]\ngrant = 'client_credentials'\nissuer = 'https://i.example'\n"
        "client_id = 'b'\nclient_secret = { env = 'S' }\nresource = 'https://me:hidden@b.example/'\n"
        "[agents.c]\ncard = 'https://c.example/'\nsigned_by.jwks = 'https://c.example/keys?key=hidden'\n"
        "[issuers.d]\nissuer = 'https://d.example'\njwks_url = 'https://d.example/keys?key=hidden'\n"
        "introspection = { client_id = 'd', client_secret = { env = 'S' }, url = 'https://d.example/?k=hidden' }\n"
    )
    rows = {row.path: row for row in shown_values(load(tmp_path / "a.toml", {"S": "s"}))}
    assert not any("hidden" in row.value for row in rows.values())
    address = rows["tool_servers.a.env.DATABASE_URL"]
    assert (address.value, address.is_whole) == ('"postgres://db/notes"', False)
    assert rows["tool_servers.a.env.SMTP_PASS"].value == '"***"'
    assert rows["tool_servers.a.env"].value == '{ PATHS = "a:b" }'
    assert rows["tool_servers.b.headers"].value == '{ X-Team = "blue" }'
    assert 'resource = "https://b.example/"' in rows["tool_servers.b.auth"].value
    assert not any(rows[name].is_whole for name in ("tool_servers.b.auth", "agents.c.signed_by"))
    assert not any(rows[f"issuers.d.{name}"].is_whole for name in ("jwks_url", "introspection"))
