"""Servers as MCP hosts list them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.load import load
from bridge.config.mcp_json import read_host_file, read_json
from bridge.config.tables.models import ToolServerTable
from bridge.config.text.masking import shown_words
from bridge.errors import ConfigError
from bridge.text.diagnostics import Diagnostic

TOKEN = "T0k3n-of-somebody"


def servers_in(folder: Path, text: str, **environment: str) -> dict[str, ToolServerTable]:
    path = folder / "mcp.json"
    path.write_text(text, encoding="utf-8")
    file = read_host_file(path, environment)
    assert not file.refused
    return {name: imported.table for name, imported in file.entries.items()}


def server(folder: Path, entry: dict[str, Any], **environment: str) -> ToolServerTable:
    return servers_in(folder, json.dumps({"mcpServers": {"a": entry}}), **environment)["a"]


def test_arguments_follow_the_command(tmp_path: Path) -> None:
    found = server(tmp_path, {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "type": "stdio"})
    assert found.command == ("npx", "-y", "x")
    assert found.variables() == {"A": "b"}
    assert found.cwd == tmp_path


@pytest.mark.parametrize("key", ["url", "serverUrl", "httpUrl"])
def test_a_url_has_the_names_that_hosts_use(key: str, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    found = server(tmp_path, {key: "https://a.example/mcp", "headers": headers, "type": "http"})
    assert found.url == "https://a.example/mcp"
    assert found.request_headers() == headers


@pytest.mark.parametrize(
    ("said", "transport"),
    [
        ({"type": "sse"}, "sse"),
        ({"transport": "sse"}, "sse"),
        ({"type": "http"}, None),
        ({"type": "streamable-http"}, None),
        ({"type": ["sse"]}, None),
        ({}, None),
    ],
)
def test_the_type_of_a_url_selects_the_older_transport(
    said: dict[str, Any], transport: str | None, tmp_path: Path
) -> None:
    assert server(tmp_path, {"url": "https://a.example/sse", **said}).transport == transport


def test_a_type_is_ignored_for_a_command(tmp_path: Path) -> None:
    assert server(tmp_path, {"command": "a", "type": "sse"}).transport is None


def test_an_entry_may_say_the_era_of_its_server(tmp_path: Path) -> None:
    assert server(tmp_path, {"command": "a", "era": "legacy"}).era == "legacy"
    assert server(tmp_path, {"command": "a", "era": None}).era == "auto"
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "a", "era": "older"}}}')
    (fault,) = read_host_file(path, {}).refused["a"]
    assert "older" in str(fault)


def test_plain_secrets_are_accepted_and_never_shown(tmp_path: Path) -> None:
    found = server(tmp_path, {"command": "a", "env": {"A": TOKEN}})
    assert found.variables() == {"A": TOKEN}
    assert TOKEN not in repr(found)
    assert TOKEN not in repr(found.env)


@pytest.mark.parametrize("holder", ["mcpServers", "servers"])
def test_comments_and_extra_commas_are_ignored(holder: str, tmp_path: Path) -> None:
    text = f'// a\n{{ "inputs": [1,], /* b */ "{holder}": {{ "a": {{ "command": "//x", }}, }}, }}\n'
    assert servers_in(tmp_path, text)["a"].command == ("//x",)


def test_keys_for_the_host_itself_are_ignored(tmp_path: Path) -> None:
    found = server(
        tmp_path, {"command": "a", "autoApprove": ["x"], "timeout": 5, "disabled": False, "cwd": None}
    )
    assert found.command == ("a",)


@pytest.mark.parametrize("off", ['"disabled": true', '"enabled": false'])
def test_a_disabled_server_is_ignored(off: str, tmp_path: Path) -> None:
    assert servers_in(tmp_path, f'{{"mcpServers": {{"a": {{"command": "a", {off}}}}}}}') == {}


def test_an_enabled_server_is_read(tmp_path: Path) -> None:
    assert list(servers_in(tmp_path, '{"mcpServers": {"a": {"command": "a", "enabled": true}}}')) == ["a"]


def test_a_server_named_in_another_script_gets_a_stable_name(tmp_path: Path) -> None:
    text = json.dumps(
        {"mcpServers": {"文件": {"command": "a"}, "Погода": {"command": "b"}, "!": {"command": "c"}}}
    )
    assert list(servers_in(tmp_path, text)) == ["x-39932f24", "x-4f7637e3"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("GitHub", "github"),
        ("my server (2)", "my-server-2"),
        ("a_b-c", "a_b-c"),
        ("-x-", "x"),
        ("a" * 60, "a" * 40),
    ],
)
def test_a_name_becomes_a_valid_table_name(written: str, name: str, tmp_path: Path) -> None:
    assert list(servers_in(tmp_path, json.dumps({"servers": {written: {"command": "a"}}}))) == [name]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${A}", "b"),
        ("${env:A}", "b"),
        ("x${A}y${A}", "xbyb"),
        ("${GONE:-c}", "c"),
        ("${GONE:-}", ""),
        ("${A:-c}", "b"),
        ("$A", "$A"),
    ],
)
def test_variables_come_from_the_environment(written: str, read: str, tmp_path: Path) -> None:
    found = server(tmp_path, {"command": "a", "args": [written], "env": {"X": written}}, A="b")
    assert found.command == ("a", read)
    assert found.variables() == {"X": read}


@pytest.mark.parametrize(
    ("entry", "key", "shown"),
    [
        ({"command": "a", "args": ["--token", "${A}"]}, "command", ["a", "--token", "${A}"]),
        ({"command": "a", "args": ["--token=${env:A}"]}, "command", ["a", "--token=${A}"]),
        ({"command": "a", "args": ["-H", "Authorization: Bearer ${A}"]}, "command", None),
        ({"command": "a", "args": ["--token", "plain${A}"]}, "command", ["a", "--token", "***"]),
        ({"command": "a", "args": ["--api-key", TOKEN]}, "command", ["a", "--api-key", "***"]),
        ({"command": "a", "args": [f"https://a.example/?{TOKEN}"]}, "command", ["a", "https://a.example/"]),
        ({"command": "${GONE:-secret}"}, "command", ["${GONE}"]),
        ({"command": "a", "cwd": "${A:-x}/.."}, "cwd", "${A}/.."),
        ({"url": "https://a.example/${A}?key=${A}"}, "url", "https://a.example/${A}"),
        ({"httpUrl": "https://a.example/?key=${A}"}, "url", "https://a.example/"),
    ],
)
def test_a_server_is_shown_with_the_names_of_its_variables(
    entry: dict[str, Any], key: str, shown: object, tmp_path: Path
) -> None:
    (tmp_path / TOKEN).mkdir()
    found = server(tmp_path, entry, A=TOKEN)
    shown = shown or ["a", "-H", "Authorization: Bearer ${A}"]
    assert found.shown(key) == shown
    assert TOKEN not in repr(found)
    assert "secret" not in repr(found)


def test_a_server_without_variables_is_shown_as_it_is(tmp_path: Path) -> None:
    found = server(tmp_path, {"command": "npx", "args": ["-y", "x"]})
    assert found.shown("command") is None


def test_a_word_of_a_command_that_may_be_a_secret_is_not_shown() -> None:
    words = [
        "npx",
        "-y",
        "x",
        "--token=s3cret",
        "--password",
        "s3cret",
        "API_KEY=s3cret",
        "https://a/b?key=s3cret",
    ]
    hidden = ["npx", "-y", "x", "--token=***", "--password", "***", "***", "https://a/b"]
    table = ToolServerTable.model_validate({"command": words})
    assert shown_words(words) == table.shown("command") == hidden
    assert "s3cret" not in repr(table)


def test_a_number_with_too_many_digits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a number has too many digits"):
        servers_in(tmp_path, '{"a": ' + "9" * 5000 + "}")


def test_an_unused_entry_may_be_wrong(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "a"}, "b": {"url": "${input:x}"}}}')
    file = tmp_path / "bridge.toml"
    file.write_text('[import]\nmcp_json = "mcp.json"\n[tools_as_agent.x]\nfrom = ["a"]\n')
    assert list(load(file, {}).config.tool_servers) == ["a"]
    refused = read_host_file(tmp_path / "mcp.json", {}).refused
    assert list(refused) == ["b"]
    assert "can be filled in only by the host" in str(refused["b"][0])


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json") / "a.json"


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 2]))
def test_a_file_is_read_as_json_reads_it_and_every_value_has_its_place(
    file: Path, data: dict[str, Any], escaped: bool, indent: int | None
) -> None:
    text = json.dumps(data, ensure_ascii=escaped, indent=indent)
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    document = read_json(file, "the file")
    assert document.data == data
    for path, spot in document.positions.items():
        value: Any = data
        for step in path:
            value = value[step]
        assert json.loads(text[spot.value.start : spot.value.end]) == value
        if spot.key is not None:
            assert json.loads(text[spot.key.start : spot.key.end]) == path[-1]


@given(st.text('{}[]":,/*\\ \n1tn', max_size=12))
def test_a_file_that_is_no_json_is_refused_with_one_error(file: Path, text: str) -> None:
    file.write_text(text, newline="")
    try:
        document = read_json(file, "the file")
    except ConfigError as exc:
        said = exc.diagnostics
    else:
        said = (Diagnostic(document.path, "none"),)
    assert len(said) == 1
