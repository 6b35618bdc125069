"""Makes the data of a configuration file from the options of `wrap`, `expose` and `proxy`.

The data is treated like that of a file: `bridge.config.load` checks it, and `bridge.assembly.plan_from_file` makes the
plan. `--print-toml` prints the data. Secrets are references, and paths are absolute. Printing reports the options that
no file can hold, and those that a file holds in another way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan
    from bridge.config.load import LoadedConfig
    from bridge.config.text.positions import KeyPath
    from bridge.identity.callers.principals import Principal

_OPTIONS: Final = {
    "hosts": "--allow-host",
    "headers": "--header",
    "command": "COMMAND",
    "url": "URL",
    "card": "AGENT_URL",
    "from": "AGENT_URL",
    "mcp_json": "--from-json",
    "certificate": "--cert",
    "principals": "--auth",
    "enabled": "--push",
    "allow": "--push-allow",
}
"""The option or argument for a key of the file, where the names differ."""
_AROUND: Final = ("auth", "skills", "tls", "tools", "*")
"""Keys that only contain the keys of options."""

_WEB: Final = ("http://", "https://")
_TLS: Final = {"cert": "certificate", "key": "key", "ca": "ca"}
"""The options for TLS with a peer, and their keys in a file."""

SEVERAL: Final = "tools"
"""The name of an agent made of several servers, in its path."""


def option_at(path: KeyPath) -> str:
    """The option or argument for the value at a path of the document."""
    depth = (
        0 if path[:1] == ("principals",) else 1 if path[:1] in (("bridge",), ("import",), ("push",)) else 2
    )
    step = next((str(step) for step in path[depth:] if step not in _AROUND), "")
    return _OPTIONS.get(step, f"--{step.replace('_', '-')}") if step else ""


@dataclass
class OptionsDocument:
    """A document made of options, with the messages for writing it to a file."""

    data: dict[str, Any] = field(default_factory=dict)
    principals: dict[str, str] = field(default_factory=dict)
    """The names in `--auth` of principals that have other names in the document."""
    unsaid: list[str] = field(default_factory=list)
    """Messages about options that no file can hold."""
    remarks: list[str] = field(default_factory=list)
    """Messages about options that a file holds in another way."""

    def plan(self) -> Plan:
        """The plan of the document.

        Raises:
            UsageError: the options do not fit together, or a secret cannot be read.
        """
        plan = plan_of(self.data)
        credentials = [replace(one, principal=self._named(one.principal)) for one in plan.credentials]
        return replace(plan, credentials=credentials)

    def loaded(self) -> LoadedConfig:
        """The document, checked as a file is.

        Raises:
            UsageError: as for `plan`.
        """
        return _loaded(self.data)

    def _named(self, principal: Principal) -> Principal:
        return replace(principal, name=self.principals.get(principal.name, principal.name))

    def admitted(self, texts: Iterable[str]) -> dict[str, Any]:
        """The principals of `--auth` options as tables of a file. An option takes any name, and a name several times; a
        file does not, so each token gets a table with a name that a file accepts."""
        from bridge.config.text.secrets import principal_in
        from bridge.config.text.wording import table_name

        tables: dict[str, Any] = {}
        for name, reference in map(principal_in, texts):
            key = _free(table_name(name) or "principal", tables)
            tables[key] = {"bearer": reference}
            if key == name:
                continue
            self.principals[key] = name
            self.unsaid.append(
                f"a principal has one token in a file: give a token of {name} to another name"
                if name == table_name(name)
                else f"a file takes small letters, digits, - and _ for a principal, not {name!r}"
            )
        return tables

    def write(self) -> int:
        """Print the equivalent file.

        Raises:
            UsageError: no file is equivalent.
        """
        from bridge.cli import render
        from bridge.config.toml_text import document_of

        for words in self.unsaid:
            raise UsageError(words)
        for words in self.remarks:
            render.say(words)
        render.write_document(document_of(_with_logins(_without_none(self.data))))
        return 0


def plan_of(data: dict[str, Any]) -> Plan:
    """The plan of a document of options, in which None means a missing value.

    Raises:
        UsageError: the document has errors.
    """
    from bridge.assembly.plan_from_file import plan_from_file

    return plan_from_file(_loaded(data))


def _loaded(data: dict[str, Any]) -> LoadedConfig:
    from bridge.config.load import load_options
    from bridge.config.text.document import OptionDocument

    return load_options(OptionDocument(_without_none(data), option_at))


def _with_logins(data: dict[str, Any]) -> dict[str, Any]:
    """The document, with `auth.oauth2` for each peer with a stored login: the command uses that login."""
    from bridge.cli.login.login import stored_login

    def with_login(table: dict[str, Any], url: str | None) -> dict[str, Any]:
        auth, headers = table.get("auth", {}), table.get("headers", {})
        if url is None or "bearer" in auth or "authorization" in map(str.lower, headers):
            return table
        if stored_login(url, allow_private=False, tls=None) is None:
            return table
        return {**table, "auth": {**auth, "oauth2": {"grant": "authorization_code"}}}

    peers = {
        section: {key: with_login(one, one.get(place)) for key, one in data[section].items()}
        for section, place in (("tool_servers", "url"), ("agents", "card"))
        if section in data
    }
    return {**data, **peers}


def wrapped(options: Mapping[str, Any]) -> OptionsDocument:
    """The document of `wrap`: an agent made of one server, or of the servers in a host's file.

    Raises:
        UsageError: the options name no server, or name servers in different ways.
    """
    from bridge.text.short_names import name_of, slug

    wanted = slug(options["name"]) if options["name"] else ""
    if options["from_json"]:
        servers = _names_in_host_file(options)
        name = wanted or (servers[0] if len(servers) == 1 else SEVERAL)
        tables: dict[str, Any] = {"import": {"mcp_json": os.path.abspath(options["from_json"])}}
    else:
        table = _server(options)
        name = wanted or slug(name_of(table.get("url") or table["command"]))
        servers, tables = [name], {"tool_servers": {name: table}}
    store = _store(options["store"])
    asked = OptionsDocument(
        unsaid=[*_unsaid_of_wrapped(options)], remarks=[*_remarks_on_wrapped(options, store, name)]
    )
    asked.data = {
        "bridge": {**_published_place(options, store), "mapping": _mapping(options)},
        **tables,
        "tools_as_agent": {name: {"from": servers, **_agent(options)}},
        "push": _push(options),
        "principals": asked.admitted(options["auth"]),
    }
    return asked


def _published_place(options: Mapping[str, Any], store: str | None) -> dict[str, Any]:
    """The keys of [bridge] for the options of a command that serves one agent."""
    return {
        **_place(options),
        "public_url": options["public_url"],
        "grpc": options["grpc"],
        "hosts": list(options["allow_host"]),
        "store": store,
        **_switched_on(options),
    }


def proxied(options: Mapping[str, Any]) -> OptionsDocument:
    """The document of `proxy`: an agent made of remote agents.

    Raises:
        UsageError: an agent is not named by a URL.
    """
    from bridge.text.short_names import slug

    agents = _agents(options)
    name = slug(options["name"]) if options["name"] else next(iter(agents))
    asked = OptionsDocument(unsaid=_passwords_in(options["urls"]))
    asked.data = {
        "bridge": {**_published_place(options, _store(options["store"])), "mapping": _mapping(options)},
        "agents": agents,
        "agents_as_agent": {
            name: {
                "from": list(agents),
                "mapping": _mapping(options),
                "name": options["name"] or None,
                "description": options["description"] or None,
            }
        },
        "push": _push(options),
        "principals": asked.admitted(options["auth"]),
    }
    return asked


def _push(options: Mapping[str, Any]) -> dict[str, Any] | None:
    allow = list(options["push_allow"])
    return {"enabled": True, "allow": allow} if options["push"] or allow else None


def _agent(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "mapping": _mapping(options),
        "name": options["name"] or None,
        "description": options["description"] or None,
        "fail": options["fail"],
        "share": [kind.strip() for kind in options["share"].split(",")] if options["share"] else None,
        "prompts": options["prompts"],
        "resources": options["resources"],
        "links": options["links"],
        "skills": {"*": {"call_timeout_seconds": options["call_timeout_seconds"]}},
    }


def exposed(options: Mapping[str, Any]) -> OptionsDocument:
    """The document of `expose`: an MCP server made of agents.

    Raises:
        UsageError: an agent is not named by a URL.
    """
    from bridge.text.short_names import slug

    mapping, agents = _mapping(options), _agents(options)
    name = slug(options["name"] or "mcp-a2a")
    asked = OptionsDocument(unsaid=_passwords_in(options["urls"]))
    asked.data = {
        "bridge": {**(_exposed_place(options) if options.get("over_http") else {}), "mapping": mapping},
        "agents": agents,
        "agents_as_tools": {
            name: {
                "from": list(agents),
                "mapping": mapping,
                "tools": {"*": {"answer_within_seconds": options["answer_within_seconds"]}},
            }
        },
        "principals": asked.admitted(options.get("auth", ())),
    }
    if options["granularity"]:
        asked.unsaid.append(
            "a file has --granularity only in a mapping profile: write a profile with `extends`, `[agents]` and"
            f' `granularity = "{options["granularity"]}"`, and name it with --mapping'
        )
    return asked


def _without_none(value: Any) -> Any:
    """Remove None, and tables that are empty without it."""
    if not isinstance(value, dict):
        return value
    kept = {key: _without_none(inner) for key, inner in value.items()}
    return {key: inner for key, inner in kept.items() if inner is not None and inner not in ({}, [])}


def _exposed_place(options: Mapping[str, Any]) -> dict[str, Any]:
    return {**_place(options), "public_url": options["public_url"]}


def _place(options: Mapping[str, Any]) -> dict[str, Any]:
    from bridge.config.tables.models import BridgeTable

    unsaid = BridgeTable()
    keys = ("host", "port", "log_format", "log_level", "allow_unauthenticated")
    return {key: options[key] for key in keys if options[key] != getattr(unsaid, key)}


def _switched_on(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of [bridge] that are true or false, and that an option of the same name makes true."""
    from bridge.config.tables.models import BridgeTable

    fields = BridgeTable.model_fields.items()
    return {key: True for key, field in fields if field.annotation is bool and options.get(key)}


def _mapping(options: Mapping[str, Any]) -> str | None:
    from bridge.config.tables.profile import DEFAULT_PROFILE_NAME, absolute_name

    name: str = options["mapping"] or DEFAULT_PROFILE_NAME
    return None if name == DEFAULT_PROFILE_NAME else absolute_name(name, Path.cwd())


def _store(place: str | None) -> str | None:
    from bridge.config.tables.values import MEMORY_STORE, SQLITE_SCHEME

    if not place or place in (MEMORY_STORE, MEMORY_STORE.rstrip(":")):
        return place
    path = place.removeprefix(SQLITE_SCHEME)
    return path if "://" in path else os.path.abspath(Path(path).expanduser())


def _free(wanted: str, taken: Mapping[str, object]) -> str:
    """A name that is not taken."""
    from bridge.config.text.wording import TABLE_NAME_LIMIT

    name, number = wanted, 2
    while name in taken:
        suffix = f"-{number}"
        name, number = f"{wanted[: TABLE_NAME_LIMIT - len(suffix)]}{suffix}", number + 1
    return name


# The servers of `wrap`


def _server(options: Mapping[str, Any]) -> dict[str, Any]:
    from bridge.config.text.masking import shown_words

    words: tuple[str, ...] = options["target"]
    if options["only"]:
        raise UsageError("--only is for --from-json")
    if not words:
        raise UsageError("Missing argument: the URL of a server, -- COMMAND ARGS..., or --from-json FILE")
    known = False if options["no_known"] else None
    more = {**era_of(options), "connect_seconds": options["connect_seconds"], "known": known}
    if not words[0].startswith(_WEB):
        return {**server_of(words, options), **more}
    if len(words) > 1:
        raise UsageError(f"give a URL or a command, not both: {' '.join(shown_words(words))}")
    return {**server_at(words[0], options), **more}


def era_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The key for `--era`; its value is None for `auto`."""
    return {"era": None if options["era"] == "auto" else options["era"]}


def server_at(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a server that is reached at a URL.

    Raises:
        UsageError: an option is for commands only.
    """
    if options["variables"]:
        raise UsageError("--env is for a command; a URL takes --header")
    _require_host(url)
    return {
        "url": url,
        "headers": _headers(options),
        "auth": {"bearer": _secret(options, "bearer")},
        "tls": _tls(options),
        "allow_private": options["allow_private"] or None,
    }


def server_of(words: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a server that is started by these words.

    Raises:
        UsageError: an option is for URLs only.
    """
    from bridge.config.text.secrets import child_variable_in
    from bridge.http.probe import url_with_scheme

    for key in (key for key in ("header", "bearer") if options.get(key)):
        raise UsageError(f"--{key} is for a URL; a command takes --env")
    for key in (key for key in _TLS if options.get(key)):
        raise UsageError(f"--{key} is for a URL: a command is reached without TLS")
    if options["allow_private"]:
        raise UsageError("--allow-private is for a URL: nothing is looked up for a command")
    meant = url_with_scheme(words[0]) if len(words) == 1 and shutil.which(words[0]) is None else None
    if meant is not None and not Path(words[0]).exists():
        raise UsageError(
            f"{words[0]!r} is not a command; an address begins with its scheme: did you mean {meant}?"
        )
    variables = dict(map(child_variable_in, options["variables"]))
    return {"command": list(words), "cwd": str(Path.cwd()), "env": variables}


def _names_in_host_file(options: Mapping[str, Any]) -> list[str]:
    """The names of all servers in a host's file, or those in `--only`. Mistakes in other servers do not matter."""
    from bridge.config.mcp_json import read_host_file
    from bridge.config.text.wording import meant, table_name

    given = {"a URL or command": "target", "--header": "header", "--env": "variables"}
    given |= {f"--{key}": key for key in _TLS}
    for what in (what for what, key in given.items() if options.get(key)):
        raise UsageError(f"--from-json describes its servers in full: it does not go with {what}")
    if options["era"] != "auto":
        raise UsageError("--era is for one server: it does not go with --from-json")
    file = read_host_file(options["from_json"], os.environ)
    wanted = [table_name(name) for name in options["only"]] or sorted(file.names)
    for name in wanted:
        if name not in file.names:
            raise UsageError(
                f"{options['from_json']} has no server {name!r}: {meant(name, sorted(file.names))}"
            )
    if not wanted:
        raise UsageError(f"{options['from_json']} has no enabled server")
    return [*(name for name in file.entries if name in wanted), *sorted({*wanted} & file.refused.keys())]


def _unsaid_of_wrapped(options: Mapping[str, Any]) -> Iterator[str]:
    if options["from_json"] and options["allow_private"]:
        yield (
            "a host's file cannot say --allow-private: give its server a table [tool_servers.NAME] of its own,"
            " with `allow_private = true`"
        )
    if options["from_json"] and options["connect_seconds"] is not None:
        yield (
            "a host's file cannot say --connect-seconds: write `connect_seconds` into the table [server] of a profile,"
            " and name the profile with --mapping"
        )
    if options["from_json"] and options["no_known"]:
        yield (
            "a host's file cannot say --no-known: give its server a table [tool_servers.NAME] of its own,"
            " with `known = false`"
        )
    yield from _passwords_in(options["target"][:1])


def _remarks_on_wrapped(options: Mapping[str, Any], store: str | None, name: str) -> Iterator[str]:
    from bridge.assembly.plan_from_file import store_of
    from bridge.config.tables.values import MEMORY_STORE
    from bridge.config.text.masking import has_secrets
    from bridge.config.text.secrets import is_secret_header

    words: tuple[str, ...] = options["target"]
    if store and store != MEMORY_STORE:
        yield f"Each agent of a file has its own store. The store of this agent is {store_of(store, name)}"
    if has_secrets(words) and not words[0].startswith(_WEB):
        yield "A word of the command may be a secret, and is in plain text in the file (better: --env NAME)"
    for variable, equals, _ in (text.partition("=") for text in options["variables"]):
        if equals and is_secret_header(variable):
            yield f"{variable} seems to be a secret: the file reads it from the variable {variable}, so set it"


# The agents of `expose`


def _agents(options: Mapping[str, Any]) -> dict[str, Any]:
    from bridge.text.short_names import name_for

    table = {
        "headers": _headers(options),
        "auth": {key: _secret(options, key) for key in ("bearer", "api_key")},
        "tls": _tls(options),
        "trust": list(map(_origin, options["trust"])),
        "allow_private": options["allow_private"] or None,
        "dialect": options["dialect"],
    }
    agents: dict[str, Any] = {}
    for url in dict.fromkeys(options["urls"]):
        _require_web(url)
        agents[_free(name_for(url), agents)] = {"card": url, **table}
    return agents


def _require_web(url: str) -> None:
    from bridge.config.text.wording import shown_url
    from bridge.http.probe import url_with_scheme

    if not url.startswith(_WEB):
        meant = url_with_scheme(url)
        hint = f": did you mean {meant}?" if meant else ""
        raise UsageError(f"an agent is named by its http(s) URL, not {shown_url(url)!r}{hint}")
    _require_host(url)


def _require_host(url: str) -> None:
    """Refuse a URL without a host. The message shows the URL, because a command line may have several."""
    from bridge.config.text.wording import shown_url

    try:
        place = urlsplit(url)
        leads = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError as exc:
        raise UsageError(f"{shown_url(url)!r} is not a URL: {exc}") from exc
    if not leads:
        raise UsageError(f"{shown_url(url)!r} has no host")


def _passwords_in(urls: Iterable[str]) -> list[str]:
    if any(url.startswith(_WEB) and "@" in urlsplit(url).netloc for url in urls):
        return ["a URL in a file may have no user or password: give --header instead"]
    return []


def _origin(url: str) -> str:
    from bridge.a2a.client.http import origin_of

    _require_host(url)
    return origin_of(url)


def _tls(options: Mapping[str, Any]) -> dict[str, str]:
    if bool(options.get("cert")) is not bool(options.get("key")):
        raise UsageError("--cert and --key go together: the certificate and its private key")
    return {key: os.path.abspath(given) for option, key in _TLS.items() if (given := options.get(option))}


def _headers(options: Mapping[str, Any]) -> dict[str, Any]:
    from bridge.config.text.secrets import header_in

    return dict(map(header_in, options["header"]))


def _secret(options: Mapping[str, Any], key: str) -> dict[str, str] | None:
    from bridge.config.text.secrets import reference_in

    given: str | None = options.get(key)
    reference = reference_in(given) if given else None
    if given and reference is None:
        option = f"--{key.replace('_', '-')}"
        raise UsageError(f"{option} takes env:NAME or file:PATH, so that no secret is on the command line")
    return reference
