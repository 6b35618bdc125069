"""The rules between keys of the file. Pure; never repeats a secret.

The rules check plain values before the models check types, so that one run finds all mistakes of a file. Any value may
have the wrong type; the rules ignore such a value, because the models report it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from bridge.config.check.caller_rules import caller_faults
from bridge.config.check.plain_tables import MADE_OF, table_in, tables_at
from bridge.config.text.document import ConfigFault
from bridge.config.text.positions import KeyPath
from bridge.config.text.secrets import HOW_TO_REFER, Secret, is_secret_header
from bridge.config.text.wording import POSTGRES_SCHEMES, listed, meant, title
from bridge.http.request_checks import is_loopback


@dataclass(frozen=True)
class KeyChoice:
    """Keys of a table, at least one of which is required."""

    path: KeyPath
    """The path of the table. `*` stands for any name and any element."""
    keys: tuple[str, ...]
    only_one: bool = True


_ENDPOINT: Final = KeyChoice(("tool_servers", "*"), ("command", "url"))

CHOICES: Final = (
    KeyChoice(("bridge", "keys", "*"), ("file", "env")),
    _ENDPOINT,
    KeyChoice(("tool_servers", "*", "auth"), ("bearer", "api_key", "oauth2")),
    KeyChoice(("agents", "*", "auth"), ("bearer", "api_key", "oauth2"), only_one=False),
    KeyChoice(("agents", "*", "signed_by"), ("jwks", "file")),
    KeyChoice(("catalogs", "*", "auth"), ("bearer", "api_key", "oauth2")),
    *(
        KeyChoice((section, "*", *where, "tls"), ("certificate", "ca"), only_one=False)
        for section in ("tool_servers", "agents", "catalogs")
        for where in ((), ("auth", "oauth2"))
    ),
    KeyChoice(
        ("principals", "*"), ("bearer", "tokens", "api_key", "certificate", "forwarded"), only_one=False
    ),
)

_GOES_WITH: Final = {
    "env": "command",
    "cwd": "command",
    "each_replica": "command",
    "headers": "url",
    "auth": "url",
    "login": "url",
    "tls": "url",
    "transport": "url",
    "proxy": "url",
}
"""Keys of a tool server, each with the key that it depends on."""

OF_ENDPOINTS: Final = frozenset(
    (*_ENDPOINT.keys, *_GOES_WITH, "login_seconds", "login_keep_days", "allow_private")
)
"""The keys of a tool server that describe its command or URL."""

_INSTEAD: Final = {
    "each_replica": "take it out: each replica connects to a URL by itself",
    "env": "write `headers` or `auth`",
    "headers": "write `env`",
    "auth": "write `env`",
    "tls": "take it out: a command is reached without TLS",
    "transport": "take it out: a command speaks MCP over stdio",
    "proxy": "take it out: a command has `HTTPS_PROXY` in its `env`",
}


_SETTINGS: Final = {"env": "variables", "headers": "headers"}
"""Tables in which each entry may be a secret."""

SECTION_NOUNS: Final = {
    "tool_servers": ("a tool server", "tool servers"),
    "agents": ("an agent", "agents"),
    "catalogs": ("a catalog", "catalogs"),
    "tools_as_agent": ("a published agent", "published agents"),
    "agents_as_agent": ("an agent made of agents", "agents made of agents"),
    "agents_as_tools": ("a published MCP server", "published MCP servers"),
}
"""The noun for the tables of each section, with its plural."""

_OF_EXCHANGES: Final = ("on_behalf_of", "audience", "id_jag")
"""The keys for tokens on behalf of callers."""

_KEYS_OF_GRANTS: Final[Mapping[str, tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]]] = {
    "client_credentials": (
        (("issuer",), ("client_id",), ("client_secret", "private_key", "assertion_file")),
        ("client_metadata_url", "pkce"),
    ),
    "jwt_bearer": (
        (("issuer",), ("assertion_file",)),
        ("client_secret", "private_key", "client_auth", "client_metadata_url", "pkce", *_OF_EXCHANGES),
    ),
    "authorization_code": ((), ("private_key", "assertion_file", *_OF_EXCHANGES)),
    "token_exchange": (
        (("issuer",), ("client_id",), ("client_secret", "private_key", "assertion_file")),
        ("client_metadata_url", "pkce"),
    ),
}
"""For each grant, the choices of keys that it needs, and the keys that it does not take."""

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_PORT: Final = 8080
"""The port of a bridge whose file names none."""

NamesBySection = Mapping[str, frozenset[str]]

ImportedNames = Mapping[str, frozenset[str] | None]
"""The names of peers in imported files, by section; None if a file could not be read, so that the names are unknown."""

_GLOB: Final = re.compile(r"[*?\[]")

_UNIQUE: Final = {"skills": "id", "tools": "name"}
"""The tables of overrides, and the key in them that must be unique."""


def rule_faults(
    data: Mapping[str, Any], imported: ImportedNames, in_process: frozenset[str] = frozenset()
) -> Iterator[ConfigFault]:
    """Yield all faults between keys of a file. The tool servers `in_process` need neither a command nor a URL."""
    for choice in CHOICES:
        for fault in _choice_faults(data, choice):
            if choice is not _ENDPOINT or fault.path[1] not in in_process:
                yield fault
    for path, table in tables_at(data, ("tool_servers", "*")):
        yield from _misplaced(path, table)
    for section in ("tool_servers", "agents", "catalogs"):
        for path, table in tables_at(data, (section, "*")):
            yield from _header_faults(path, table)
            yield from _reference_faults(path, table)
            yield from _tls_faults(path, table, table.get("card" if section == "agents" else "url"))
        for path, table in tables_at(data, (section, "*", "auth", "oauth2")):
            yield from _grant_faults(path, table)
            yield from _tls_faults(path, table, table.get("issuer"))
    for path, table in tables_at(data, ("agents", "*", "auth")):
        if "bearer" in table and "oauth2" in table:  # either may be combined with an API key
            yield from _faults_of_choice(path, table, KeyChoice(path, ("bearer", "oauth2")))
    yield from _store_faults(table_in(data, "bridge"))
    yield from _card_key_faults(table_in(data, "bridge"))
    yield from _grpc_faults(data, imported)
    yield from caller_faults(data)
    yield from _source_faults(data, imported)
    for path, face in tables_at(data, ("tools_as_agent", "*")) if "model" not in data else ():
        if face.get("language") == "model":
            words = '`language = "model"` needs the table [model], which says where texts go'
            yield ConfigFault((*path, "language"), words, "add [model] with its `url` and `model`")
    yield from _link_faults(data)
    for section in ("tools_as_agent", "agents_as_agent"):
        for path, face in tables_at(data, (section, "*")):
            if face.get("public") is True and "public_url" not in table_in(data, "bridge"):
                words = "`public = true` needs the address of this bridge, and [bridge] has no `public_url`"
                yield ConfigFault((*path, "public"), words, "write `public_url` in [bridge]")
    yield from _forwarding_faults(data)
    for path, face in tables_at(data, ("tools_as_agent", "*")):
        share = face.get("share")
        if isinstance(share, list) and "apps" in share and "resources" not in share:
            words = "`apps` needs `resources`: the page of an app is a resource of its server"
            yield ConfigFault((*path, "share"), words, 'write share = ["resources", "apps"]')
    for section in MADE_OF:
        for path, face in tables_at(data, (section, "*")):
            yield from _override_faults(path, face)


def _link_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield a fault of each agent that serves links which only this machine could open, although others call it."""
    place = table_in(data, "bridge")
    if "public_url" in place or ("tls" not in place and is_loopback(str(place.get("host", "127.0.0.1")))):
        return
    for path, face in tables_at(data, ("tools_as_agent", "*")):
        if face.get("links") == "serve":
            words = '`links = "serve"` needs the address of this bridge, and [bridge] has no `public_url`'
            yield ConfigFault((*path, "links"), words, "write `public_url` in [bridge]")


def _forwarding_faults(data: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of agents made of agents: a name that an agent made of tools has, too, since both would be at
    `/agents/NAME`; and a remote agent that wants a login of each caller, or that is this bridge itself."""
    of_tools = table_in(data, "tools_as_agent")
    for name in table_in(data, "agents_as_agent"):
        if name in of_tools:
            words = f"`{name}` is a published agent made of tools, too, and both would be at /agents/{name}"
            yield ConfigFault(("agents_as_agent", name), words, "rename one of them", on_key=True)
    for face, named in sources_of(data, "agents_as_agent").items():
        for index, source in named.items():
            agent = table_in(data, "agents").get(source)
            if not isinstance(agent, dict):
                continue
            where = ("agents_as_agent", face, "from", index)
            if agent.get("login") == "each":
                words = f"`{source}` wants a login of each caller, which an agent made of agents cannot ask for yet"
                yield ConfigFault(where, words, "use it in agents_as_tools")
            if _is_own(agent.get("card"), table_in(data, "bridge")):
                words = f"`{source}` is an agent of this same bridge, so messages would go in a circle"
                yield ConfigFault(where, words, "name an agent that another process serves")


def _is_own(card: object, bridge: Mapping[str, Any]) -> bool:
    """Whether the address of a card is that of the bridge itself."""
    public, port = bridge.get("public_url"), bridge.get("port", _PORT)
    hosts = {*_LOOPBACK, str(bridge.get("host", ""))}
    own = [f"{scheme}://{host}:{port}" for scheme in ("http", "https") for host in hosts if host]
    own += [public.rstrip("/")] if isinstance(public, str) and public else []
    return isinstance(card, str) and any(card == base or card.startswith(f"{base}/") for base in own)


def _choice_faults(data: Mapping[str, Any], choice: KeyChoice) -> Iterator[ConfigFault]:
    for path, table in tables_at(data, choice.path):
        yield from _faults_of_choice(path, table, choice)


def _faults_of_choice(path: KeyPath, table: Mapping[str, Any], choice: KeyChoice) -> Iterator[ConfigFault]:
    there = [key for key in choice.keys if key in table]
    if len(there) > 1 and choice.only_one:
        message = f"{title(path)} has both `{there[0]}` and `{there[1]}`"
        yield ConfigFault((*path, there[1]), message, "keep one of them", on_key=True)
    elif not there:
        either = listed(f"`{key}`" for key in choice.keys)
        yield ConfigFault(path, f"{title(path)} needs {either}", on_key=True, missing=choice.keys[0])


def _grant_faults(path: KeyPath, table: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of keys that a grant needs or does not take."""
    grant = table.get("grant")
    if not isinstance(grant, str) or grant not in _KEYS_OF_GRANTS:
        return
    needed, foreign = _KEYS_OF_GRANTS[grant]
    shows_certificate = "certificate" in table_in(table, "tls")
    for keys in needed:
        if shows_certificate and "client_secret" in keys and not table.keys() & {*keys}:
            continue  # the certificate authenticates the client (RFC 8705 section 2)
        yield from _faults_of_choice(path, table, KeyChoice(path, keys))
    for key in foreign:
        if key in table:
            yield ConfigFault(
                (*path, key), f"`{key}` is not for the grant `{grant}`", "take it out", on_key=True
            )
    if grant == "client_credentials" and "on_behalf_of" not in table:
        for key in _OF_EXCHANGES:
            if key in table:
                message = f"`{key}` is for tokens on behalf of callers"
                yield ConfigFault((*path, key), message, 'add on_behalf_of = "caller"', on_key=True)
    if isinstance(there := table.get("id_jag"), dict):
        secrets = KeyChoice(path, ("client_secret", "private_key"))
        yield from _faults_of_choice((*path, "id_jag"), there, secrets)
    if grant == "authorization_code" and ("client_secret" in table or shows_certificate):
        # Without an issuer the server would choose who gets the secret or sees the certificate.
        for key in ("issuer", "client_id"):
            yield from _faults_of_choice(path, table, KeyChoice(path, (key,)))


def _misplaced(path: KeyPath, table: Mapping[str, Any]) -> Iterator[ConfigFault]:
    for key, companion in _GOES_WITH.items():
        other = "url" if companion == "command" else "command"
        if key in table and companion not in table and other in table:
            message = f"`{key}` is for a `{companion}`, and {title(path)} has a `{other}`"
            yield ConfigFault((*path, key), message, _INSTEAD.get(key, ""), on_key=True)


def _tls_faults(path: KeyPath, table: Mapping[str, Any], url: object) -> Iterator[ConfigFault]:
    """Yield faults of the client certificate for the peer at a URL."""
    tls = table_in(table, "tls")
    pair = [key for key in ("certificate", "key") if key in tls]
    if len(pair) == 1:
        other = "key" if pair == ["certificate"] else "certificate"
        yield ConfigFault((*path, "tls", *pair), f"`{pair[0]}` needs `{other}` beside it", on_key=True)
    if "tls" in table and isinstance(url, str) and url.lower().startswith("http://"):
        yield ConfigFault(
            (*path, "tls"),
            f"{title(path)} is reached without TLS",
            "write its URL with https://",
            on_key=True,
        )


def _header_faults(path: KeyPath, table: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of headers: secrets in plain text, and headers that appear twice (ignoring case)."""
    headers = table.get("headers")
    named: dict[str, str] = {}
    for header in _headers_of_auth(table.get("auth")):
        named[header.lower()] = "`auth`"
    for header, value in headers.items() if isinstance(headers, dict) else ():
        where = (*path, "headers", header)
        if isinstance(value, str) and is_secret_header(header):
            yield ConfigFault(
                where,
                f"`{header}` is a secret, which must not stand in the file in plain text",
                f"write {HOW_TO_REFER}",
            )
        if header.lower() in named:
            message = f"the header {header} appears twice: {named[header.lower()]} sets it too"
            yield ConfigFault(where, message, on_key=True)
        named.setdefault(header.lower(), f"`{header}`")


def _reference_faults(path: KeyPath, table: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield a fault for a secret's reference in place of a table: its `env` or `file` would be read as the name of a
    setting."""
    for key, named in _SETTINGS.items():
        match table.get(key):
            case {"env": str(), **rest} | {"file": str(), **rest} if not rest:
                message = f"`{key}` is a table of {named}, but this is the place of a single value"
                yield ConfigFault((*path, key), message, f'write {key} = {{ NAME = {{ env = "VARIABLE" }} }}')


def _store_faults(bridge: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults of a store that replicas share."""
    is_shared = is_shared_store(bridge.get("store"))
    if is_shared and not bridge.get("keys"):
        yield ConfigFault(
            ("bridge", "store"),
            "replicas that share a store must share the `keys` that seal handles, and [bridge] has no `keys`",
            'write keys = [{ env = "NAME" }]: the same secret for all replicas',
        )
    for key in ("store_direct", "replica_url"):
        if key in bridge and not is_shared:
            message = f"`{key}` is for a `store` in PostgreSQL"
            yield ConfigFault(("bridge", key), message, "take it out", on_key=True)


def _card_key_faults(bridge: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield a fault for each key in `card_keys` that is also in `keys`, from which the keys for notifications are
    derived."""
    keys, card_keys = bridge.get("keys"), bridge.get("card_keys")
    for number, key in enumerate(card_keys if isinstance(card_keys, list) else ()):
        if isinstance(keys, list) and key in keys:
            yield ConfigFault(
                ("bridge", "card_keys", number),
                "a key of `keys` seals handles and signs notifications, and cannot sign cards",
                "make another key: mcp-a2a keys new card.pem",
            )


def is_shared_store(store: object) -> bool:
    """Whether `store` of `[bridge]`, as written or after reading, is a PostgreSQL database."""
    return isinstance(store, dict | Secret) or (isinstance(store, str) and store.startswith(POSTGRES_SCHEMES))


def _headers_of_auth(auth: object) -> Iterator[str]:
    match auth:
        case {"bearer": _} | {"oauth2": _}:
            yield "Authorization"
        case {"api_key": {"header": str(header)}}:
            yield header


# Names in `from`, and in the skills of a principal


def _grpc_faults(data: Mapping[str, Any], imported: ImportedNames) -> Iterator[ConfigFault]:
    """Yield faults of addresses for agents that are not published here, or have an address that is taken."""
    table = table_in(data, "bridge")
    known = frozenset(map(str, table_in(data, "tools_as_agent"))) | (
        imported.get("tools_as_agent") or frozenset()
    )
    taken = {table.get(key) for key in ("grpc", "metrics")} - {None}
    for name, address in table_in(table, "grpc_agents").items():
        path = ("bridge", "grpc_agents", name)
        if name not in known:
            words = f"there is no published agent `{name}`"
            yield ConfigFault(
                path, words, f"write the table [tools_as_agent.{name}], or take it out", on_key=True
            )
        if isinstance(address, str) and address in taken and not address.endswith(":0"):
            yield ConfigFault(path, f"{address} is the address of something else, too", "choose another port")
        taken.add(address if isinstance(address, str) else None)


def _source_faults(data: Mapping[str, Any], imported: ImportedNames) -> Iterator[ConfigFault]:
    """Yield faults of names that are unknown, repeated, or ambiguous."""
    names = {
        section: frozenset(map(str, table_in(data, section))) | (imported.get(section) or frozenset())
        for section in SECTION_NOUNS
    }
    for section, kinds in MADE_OF.items():
        all_known = all(imported.get(kind, frozenset()) is not None for kind in kinds)
        for face, named in sources_of(data, section).items():
            for fault in _from_faults((section, face), named, names):
                if all_known or not fault.unknown:
                    yield fault
    for section in ("principals", "groups"):
        for path, table in tables_at(data, (section, "*")):
            if isinstance(written := table.get("skills"), list):
                yield from _face_faults((*path, "skills"), written, names)
    for path, scopes in tables_at(data, ("issuers", "*", "scopes")):
        for scope, written in scopes.items():
            if isinstance(written, list):
                yield from _face_faults((*path, scope), written, names)


def sources_of(data: Mapping[str, Any], section: str) -> dict[str, dict[int, str]]:
    """For each table of a section, the names in its `from`, by index."""
    return {
        name: {index: source for index, source in enumerate(written) if isinstance(source, str) and source}
        for name, face in table_in(data, section).items()
        if isinstance(face, dict) and isinstance(written := face.get("from"), list)
    }


def _from_faults(face: KeyPath, named: Mapping[int, str], names: NamesBySection) -> Iterator[ConfigFault]:
    section, seen = str(face[0]), set[str]()
    for index, name in named.items():
        where = (*face, "from", index)
        kinds = [kind for kind in MADE_OF[section] if name in names[kind]]
        if name in seen:
            yield ConfigFault(where, f"`{name}` is named twice")
        elif not kinds:
            yield _unknown(where, section, name, names)
        elif len(kinds) > 1:
            both = listed((SECTION_NOUNS[kind][0] for kind in kinds), "and")
            yield ConfigFault(where, f"`{name}` is {both}, so the name is ambiguous", "rename one of them")
        seen.add(name)


def _unknown(where: KeyPath, section: str, name: str, names: NamesBySection) -> ConfigFault:
    takes = listed(SECTION_NOUNS[kind][1] for kind in MADE_OF[section])
    others = [noun for kind, (noun, _) in SECTION_NOUNS.items() if name in names[kind]]
    if others:
        return ConfigFault(where, f"`{name}` is {others[0]}; {title(where[:2])} is made of {takes}")
    known = sorted(frozenset().union(*(names[kind] for kind in MADE_OF[section])))
    nouns = listed(SECTION_NOUNS[kind][0] for kind in MADE_OF[section])
    hint = meant(name, known) or f"add {nouns}"
    return ConfigFault(
        where, f"there is no `{name}`: {title(where[:2])} is made of {takes}", hint, unknown=True
    )


def _face_faults(path: KeyPath, written: list[object], names: NamesBySection) -> Iterator[ConfigFault]:
    faces = sorted(frozenset().union(*(names[section] for section in MADE_OF)))
    for index, glob in enumerate(written):
        face, slash, rest = str(glob).partition("/")
        where = (*path, index)
        if slash and not any(fnmatchcase(name, face) for name in faces):
            yield ConfigFault(where, f"there is no endpoint `{face}`", meant(face, faces))
        elif (slash and not rest) or glob in faces:
            yield ConfigFault(where, f"`{glob}` is an endpoint, not a skill or tool", f'write "{face}/*"')


# Overrides of skills or tools


def _override_faults(path: KeyPath, face: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield faults between keys in the overrides of an agent or MCP server."""
    for table, unique in _UNIQUE.items():
        overrides = face.get(table)
        if isinstance(overrides, dict):
            yield from _name_faults((*path, table), overrides, unique)
            defaults = set(_with_defaults(overrides))
            for name, override in overrides.items():
                if isinstance(override, dict):
                    yield from _argument_faults((*path, table, name), override, defaults)


def _name_faults(path: KeyPath, overrides: Mapping[str, Any], unique: str) -> Iterator[ConfigFault]:
    taken: dict[str, str] = {}
    for pattern, override in overrides.items():
        name = override.get(unique) if isinstance(override, dict) else None
        if not isinstance(name, str):
            continue
        where = (*path, pattern, unique)
        if _GLOB.search(pattern):
            message = f"`{unique}` is unique, but `{pattern}` may match several {path[-1]}"
            yield ConfigFault(where, message, f"write `{unique}` under the exact name of each", on_key=True)
        elif name in taken:
            yield ConfigFault(where, f"`{pattern}` and `{taken[name]}` have the same `{unique}`")
        taken.setdefault(name, pattern)


def _argument_faults(path: KeyPath, override: Mapping[str, Any], defaults: set[str]) -> Iterator[ConfigFault]:
    """`defaults` are the arguments with a default in any override, because several overrides may apply to one tool."""
    for name, rule in _arguments(override):
        if rule.get("hidden") is not True:
            continue
        where = (*path, "arguments", name, "hidden")
        if name not in defaults:
            message = f"`{name}` is hidden and has no `default`: nobody could give it a value"
            yield ConfigFault(where, message, "add `default = ...`", on_key=True)
        if override.get("text_into") == name:
            yield ConfigFault((*path, "text_into"), f"text cannot go into `{name}`: it is hidden")


def _with_defaults(overrides: Mapping[str, Any]) -> Iterator[str]:
    for override in overrides.values():
        yield from (name for name, rule in _arguments(override) if "default" in rule)


def _arguments(override: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    arguments = override.get("arguments") if isinstance(override, dict) else None
    for name, rule in arguments.items() if isinstance(arguments, dict) else ():
        if isinstance(rule, dict):
            yield name, rule
