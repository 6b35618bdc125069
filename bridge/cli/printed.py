"""`--print-toml`: what the options of `wrap` and `expose` say, as a configuration file that says the same.

Secrets stand in it as where they are read from, and paths are absolute. Where the file cannot say quite the same, or
takes a secret from elsewhere than the command line did, a person is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.config.text.secret_values import Secret

    Tables = dict[str, dict[str, Any]]

_DEFAULTS: Final = {"host": "127.0.0.1", "port": 8080, "log_format": "text", "log_level": "info"}
"""What a file need not say."""

_EVERY: Final = '"*"'


def print_wrap(options: Mapping[str, Any], name: str, sources: Iterable[str]) -> int:
    """The file of `wrap`: an agent of this name, made of these servers."""
    mapping = _mapping(options)
    timeout = options["call_timeout_seconds"]
    tables: Tables = {
        "bridge": {
            **_place(options),
            "public_url": options["public_url"],
            "hosts": list(options["allow_host"]) or None,
            "store": _store(options["store"], name),
            "mapping": mapping,
        },
        **_servers(options, name),
        f"tools_as_agent.{name}": {
            "from": list(sources),
            "mapping": mapping,
            "name": options["name"],
            "description": options["description"],
            "fail": options["fail"],
            f"skills.{_EVERY}": {"call_timeout_seconds": timeout} if timeout else None,
        },
        **_principals(options["auth"]),
    }
    return _print(tables)


def print_expose(options: Mapping[str, Any], name: str) -> int:
    """The file of `expose`: an MCP server of this name."""
    if options["granularity"]:
        raise UsageError(
            "a file says --granularity in a mapping profile: write one with `extends`, `[agents]` and"
            f' `granularity = "{options["granularity"]}"`, and name it with --mapping'
        )
    mapping, within = _mapping(options), options["answer_within_seconds"]
    agents = _agents(options)
    place = _place(options) if options["over_http"] else {}
    tables: Tables = {
        "bridge": {**place, "mapping": mapping},
        **{f"agents.{key}": table for key, table in agents.items()},
        f"agents_as_tools.{name}": {
            "from": list(agents),
            "mapping": mapping,
            f"tools.{_EVERY}": {"answer_within_seconds": within} if within else None,
        },
        **_principals(options["auth"]),
    }
    return _print(tables)


def _print(tables: Tables) -> int:
    from bridge.cli import render
    from bridge.config.toml_text import document_of

    render.write(document_of(tables))
    return 0


def _place(options: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: options[key] for key, default in _DEFAULTS.items() if options[key] != default}
    return {**said, "allow_unauthenticated": options["allow_unauthenticated"] or None}


def _mapping(options: Mapping[str, Any]) -> str | None:
    from bridge.config.tables.models import DEFAULT_PROFILE
    from bridge.config.tables.profile_places import absolute_name

    name: str = options["mapping"]
    return None if name == DEFAULT_PROFILE else absolute_name(name, Path.cwd())


def _store(said: str | None, name: str) -> str | None:
    from bridge.assembly.from_file import store_of
    from bridge.cli import render
    from bridge.config.tables.values import MEMORY_STORE

    if said is None or said == MEMORY_STORE:
        return said
    path = _absolute(said.removeprefix("sqlite:///"))
    render.say(f"Each agent of a file has a store of its own: this one's is {store_of(path, name)}")
    return path


def _servers(options: Mapping[str, Any], name: str) -> Tables:
    from bridge.cli import render
    from bridge.config.text.masking import has_secrets

    if options["from_json"]:
        if options["allow_private"]:
            raise UsageError(
                "a host's file cannot say --allow-private: give its server a table [tool_servers.NAME] of its own,"
                " with `allow_private = true`"
            )
        return {"import": {"mcp_json": _absolute(str(options["from_json"]))}}
    words: tuple[str, ...] = options["target"]
    era = {"era": None if options["era"] == "auto" else options["era"]}
    if words[0].startswith(("http://", "https://")):
        table = {"url": _without_password(words[0]), "headers": _headers(options["header"]), **era}
        table["allow_private"] = options["allow_private"] or None
    else:
        if has_secrets(words):
            render.say(
                "A word of the command may be a secret: it stands in the file as it is (better: --env NAME)"
            )
        table = {
            "command": list(words),
            "cwd": str(Path.cwd()),
            "env": _variables(options["variables"]),
            **era,
        }
    return {f"tool_servers.{name}": table}


def _agents(options: Mapping[str, Any]) -> Tables:
    from bridge.a2a.client.http import origin_of
    from bridge.hosts.entry import name_for

    auth = {key: _secret(options[key]) for key in ("bearer", "api_key") if options[key]}
    agents: Tables = {}
    for url in dict.fromkeys(options["urls"]):
        key = wanted = name_for(url)
        number = 2
        while key in agents:
            key, number = f"{wanted}-{number}", number + 1
        agents[key] = {
            "card": _without_password(url),
            "headers": _headers(options["header"]),
            "auth": auth or None,
            "trust": [origin_of(origin) for origin in options["trust"]] or None,
            "allow_private": options["allow_private"] or None,
        }
    return agents


def _without_password(url: str) -> str:
    if "@" in urlsplit(url).netloc:
        raise UsageError(
            "a user or password does not stand in a file: give --header instead of it in the URL"
        )
    return url


def _headers(texts: Iterable[str]) -> dict[str, Any] | None:
    pairs = (text.partition("=") for text in texts)
    return {name: _setting(value) for name, _, value in pairs} or None


def _variables(texts: Iterable[str]) -> dict[str, Any] | None:
    from bridge.cli import render
    from bridge.config.text.secret_values import Secret
    from bridge.config.text.secrets import is_secret_header

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        is_secret = is_secret_header(name)
        found[name] = Secret("", f"env:{name}") if is_secret or not equals else value
        if is_secret and equals:
            render.say(
                f"{name} seems to be a secret: the file reads it from the variable {name}, so set that"
            )
    return found or None


def _principals(texts: Iterable[str]) -> Tables:
    from bridge.config.text.secrets import UNNAMED
    from bridge.config.text.wording import table_name

    tables: Tables = {}
    for text in texts:
        named, equals, rest = text.partition("=")
        name, reference = (named, rest) if equals else (UNNAMED, text)
        table = f"principals.{name}"
        if name != table_name(name):
            raise UsageError(f"a file takes small letters, digits, - and _ for a principal, not {name!r}")
        if table in tables:
            raise UsageError(f"a principal has one token in a file: give one of {name}'s to another name")
        tables[table] = {"bearer": _secret(reference.partition(":")[2])}
    return tables


def _setting(value: str) -> str | Secret:
    return _secret(value) if value.startswith(("env:", "file:")) else value


def _secret(reference: str) -> Secret:
    from bridge.config.text.secret_values import Secret

    source, _, place = reference.partition(":")
    return Secret("", f"file:{_absolute(place)}" if source == "file" else reference)


def _absolute(path: str) -> str:
    return os.path.abspath(Path(path).expanduser())
