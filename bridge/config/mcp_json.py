"""Reads an MCP host's file of servers as tool servers: `mcpServers` of most hosts, `servers` of VS Code.

Here variables and headers may hold secrets in plain text. A file for the bridge must not hold them, but hosts require
them, and copying the entries elsewhere would not make them safer. Once read, they are secrets and never shown.

Strings may hold the variables of hosts: `${NAME}`, `${NAME:-default}`, `${env:NAME}`. Variables that only a host can
fill in, such as `${input:ID}`, are refused. A server is shown with the names of its variables, not their values. Keys
for the host itself are ignored. `era` is a key of the bridge only; hosts ignore it. `"type": "sse"` means HTTP+SSE; for
any other type of a URL the bridge detects the transport.

Sources: code.claude.com/docs/en/mcp, cursor.com/docs/mcp,
code.visualstudio.com/docs/agents/reference/mcp-configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bridge.config.check.schema_nodes import tidied
from bridge.config.check.validation_faults import validation_faults_of
from bridge.config.import_file import ImportedFile
from bridge.config.tables.peers import ToolServerTable
from bridge.config.text.document import ConfigFault, Document, at, read_text
from bridge.config.text.masking import mask, shown_words
from bridge.config.text.positions import KeyPath, Span, Spot
from bridge.config.text.secrets import ReadingContext, Secret
from bridge.config.text.wording import shown_url, table_name
from bridge.errors import ConfigError
from bridge.text.diagnostics import Diagnostic
from bridge.text.jsonc import JsonNode, parse_jsonc

_HOLDERS: Final = ("mcpServers", "servers")
_URLS: Final = ("url", "serverUrl", "httpUrl")
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_ANY_VARIABLE: Final = re.compile(r"\$\{[^}]*\}")
_IN_ENVIRONMENT: Final = "write ${NAME}, and set the variable NAME"

_TEXT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?(?P<key>[ \t]*:)?')
_IN_A_TEXT: Final = re.compile(r'[^"\s]')
_SECRET_MEMBERS: Final = frozenset(("args", "env", "headers", "auth", "inputs"))
_SHOWN_MEMBERS: Final = frozenset(
    (
        "command",
        "cwd",
        "disabled",
        "enabled",
        "envFile",
        "era",
        "httpUrl",
        "serverUrl",
        "transport",
        "type",
        "url",
    )
)
"""Members of a server that are shown. Other members may be secrets of an unknown host."""


def read_host_file(path: Path, environment: Mapping[str, str]) -> ImportedFile[ToolServerTable]:
    """Read a host's file, with the faults of servers that cannot be used.

    Raises:
        ConfigError: the file cannot be read, or holds no servers.
    """
    document = read_json(path, "the servers of a host")
    holder = next((key for key in _HOLDERS if isinstance(document.data.get(key), dict)), None)
    if holder is None:
        raise ConfigError([Diagnostic(path, 'it holds no table "mcpServers" or "servers"')])
    reading = ReadingContext(path.absolute().parent, environment)
    file: ImportedFile[ToolServerTable] = ImportedFile(document)
    for written, entry in document.data[holder].items():
        where = (holder, written)
        if isinstance(entry, dict) and not _is_off(entry) and table_name(written):
            file.add(written, where, *_server(written, entry, document.place(where), reading))
    return file


def _is_off(entry: Mapping[str, Any]) -> bool:
    """Whether the entry disables the server. Some hosts have the key `disabled`, others `enabled`."""
    return entry.get("disabled") is True or entry.get("enabled") is False


def _server(
    name: str, entry: dict[str, Any], place: str, reading: ReadingContext
) -> tuple[ToolServerTable | None, list[ConfigFault]]:
    """The server of an entry, or its faults, with paths in the entry."""
    faults = list(_structure_faults(name, entry))
    filled = _filled(entry, (), reading.environment, faults)
    if faults:
        return None, faults
    url = next((key for key in _URLS if key in filled), None)
    table: dict[str, Any] = {key: filled[key] for key in ("cwd",) if filled.get(key)}
    for key in ("env", "headers"):
        if (settings := filled.get(key)) is not None:
            table[key] = _as_secrets(settings, place)
    if filled.get("era") is not None:
        table["era"] = filled["era"]
    if "command" in filled:
        table["command"] = [filled["command"], *filled.get("args", [])]
    elif url:
        table["url"] = filled[url]
        if "sse" in (filled.get("type"), filled.get("transport")):
            table["transport"] = "sse"
    display = _shown(entry, table, url)
    try:
        return ToolServerTable.model_validate(table, context=reading).shown_as(display), []
    except ValidationError as exc:
        schema = tidied(ToolServerTable.model_json_schema())
        moved = [
            replace(fault, path=_path_in(fault.path, url))
            for fault in validation_faults_of(exc, schema, table)
        ]
        return None, [_without_cwd(fault, table, display, reading) for fault in moved]


def _shown(entry: Mapping[str, Any], table: Mapping[str, Any], url: str | None) -> dict[str, Any]:
    """The texts to show in place of a table's values: the texts of the entry, without possible secrets."""
    display: dict[str, Any] = {}
    if "command" in table:
        words = [str(word) for word in (entry["command"], *entry.get("args", []))]
        display["command"] = [
            shown_url(_named(word) if _is_referred(word) else masked)
            for word, masked in zip(words, shown_words([*map(_named, words)]), strict=True)
        ]
    if "url" in table:
        display["url"] = shown_url(_named(entry[url or "url"]))
    if "cwd" in table:
        display["cwd"] = _named(entry["cwd"])
    return {key: text for key, text in display.items() if text != table[key]}


def _named(written: Any) -> str:
    """A text with its variables reduced to their names, because a default may be a secret."""
    return _VARIABLE.sub(lambda match: f"${{{match['name']}}}", str(written))


def _is_referred(word: str) -> bool:
    """Whether the possible secret in a word is only in variables: `${TOKEN}`, `--token=${TOKEN}`."""
    rest = _VARIABLE.sub("", word)
    return rest != word and (not rest or rest[-1] in "=: ")


def _without_cwd(
    fault: ConfigFault, table: Mapping[str, Any], display: Mapping[str, Any], reading: ReadingContext
) -> ConfigFault:
    """The fault, with a message that shows the variables of a folder, not their values."""
    if fault.path != ("cwd",) or "cwd" not in display:
        return fault
    return replace(fault, message=fault.message.replace(str(reading.path(str(table["cwd"]))), display["cwd"]))


def _structure_faults(name: str, entry: Mapping[str, Any]) -> Iterator[ConfigFault]:
    if "command" not in entry and not any(key in entry for key in _URLS):
        yield ConfigFault((), f"`{name}` needs `command` or `url`", on_key=True)
    arguments = entry.get("args", [])
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        yield ConfigFault(("args",), "`args` takes a list of texts")
    if "envFile" in entry:
        yield ConfigFault(
            ("envFile",), "`envFile` is not supported", "write its variables into `env`", on_key=True
        )


def _filled(value: Any, path: KeyPath, environment: Mapping[str, str], faults: list[ConfigFault]) -> Any:
    """The value with its variables filled in. Unknown variables are added to `faults`."""
    if isinstance(value, dict):
        return {key: _filled(inner, (*path, key), environment, faults) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, (*path, index), environment, faults) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    for variable in _ANY_VARIABLE.finditer(value):
        known = _VARIABLE.fullmatch(variable[0])
        if known is None:
            faults.append(
                ConfigFault(path, f"{variable[0]} can be filled in only by the host", _IN_ENVIRONMENT)
            )
        elif known["name"] not in environment and known["default"] is None:
            faults.append(ConfigFault(path, f"{variable[0]} is not set in the environment"))
    return _VARIABLE.sub(lambda match: environment.get(match["name"], match["default"] or ""), value)


def _as_secrets(settings: Any, place: str) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {
        name: Secret(setting, place) if isinstance(setting, str) else setting
        for name, setting in settings.items()
    }


def _path_in(path: KeyPath, url: str | None) -> KeyPath:
    """Turn a path in the table into the path in the entry."""
    match path:
        case ("command", int(index)):
            return ("args", index - 1) if index else ("command",)
        case ("url",):
            return (url or "url",)
        case _:
            return path


# The file


def read_json(path: Path, what: str) -> Document:
    """Read a JSON file. Diagnostics show only values that are known to be no secrets.

    Raises:
        ConfigError: the file cannot be read, or is no JSON object.
    """
    text = read_text(path, what).replace("\r\n", "\n").replace("\r", "\n")
    try:
        root = parse_jsonc(text)
    except json.JSONDecodeError as exc:
        span = Span(exc.pos, exc.pos + 1)
        raise ConfigError(
            [at(path, _hidden(text), span, f"this is not valid JSON: {exc.msg.lower()}")]
        ) from exc
    except ValueError as exc:
        raise ConfigError([Diagnostic(path, "this is not valid JSON: a number has too many digits")]) from exc
    except RecursionError as exc:
        raise ConfigError([Diagnostic(path, f"{what} is nested too deeply")]) from exc
    if not isinstance(root.value, dict):
        raise ConfigError([Diagnostic(path, "it holds no JSON object")])
    secrets = [Span(leaf.start, leaf.end) for path_in, leaf in _leaves(root, ()) if _may_be_secret(path_in)]
    return Document(path, root.value, dict(_spots(root, ())), mask(text, secrets))


def _spots(node: JsonNode, path: KeyPath) -> Iterator[tuple[KeyPath, Spot]]:
    """Yield the positions of everything in a value. If a key stands twice, the last one counts."""
    for member in node.members:
        here, inner = (*path, member.key), member.node
        yield from _spots(inner, here)
        yield here, Spot(Span(member.start, member.key_end), Span(inner.start, inner.end))
    for index, element in enumerate(node.elements):
        yield from _spots(element, (*path, index))
        yield (*path, index), Spot(None, Span(element.start, element.end))


def _leaves(node: JsonNode, path: KeyPath) -> Iterator[tuple[KeyPath, JsonNode]]:
    """Yield the values without members or elements, including those of keys that stand twice."""
    if not isinstance(node.value, dict | list):
        yield path, node
    for member in node.members:
        yield from _leaves(member.node, (*path, member.key))
    for index, element in enumerate(node.elements):
        yield from _leaves(element, (*path, index))


def _may_be_secret(path: KeyPath) -> bool:
    return path[-1] not in _SHOWN_MEMBERS or not _SECRET_MEMBERS.isdisjoint(path)


def _hidden(text: str) -> str:
    """A text that could not be parsed, with the contents of its quotes masked, except for keys."""
    return _TEXT.sub(lambda match: match[0] if match["key"] else _IN_A_TEXT.sub("*", match[0]), text)
