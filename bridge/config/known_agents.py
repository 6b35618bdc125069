"""Reads the `a2a.client.known_agents` of a Hermes configuration as agents that speak the dialect `hermes`.

An entry has a `name` and a `url`. For an agent that requires a token it also has `auth` with `type: bearer` and
`token_env`, the variable with the token. `token_env` may also stand in the entry itself. An entry for OAuth 2 is left
out, since the bridge cannot get such a token. Keys for Hermes itself are ignored.

This module needs the extra `yaml`, and is imported only if `[import]` names such a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, Field, ValidationError

from bridge.config.check.schema_nodes import tidied
from bridge.config.check.validation_faults import validation_faults_of
from bridge.config.import_file import ImportedFile
from bridge.config.tables.peers import AgentTable
from bridge.config.tables.values import HttpUrl, Table, Text, TokenVariable
from bridge.config.text.document import ConfigFault
from bridge.config.text.masking import VARIABLE_NAME
from bridge.config.text.positions import KeyPath
from bridge.config.text.secrets import ReadingContext
from bridge.config.text.wording import table_name
from bridge.config.text.yaml_text import read_yaml
from bridge.errors import ConfigError
from bridge.text.diagnostics import Diagnostic

_AGENTS: Final = ("a2a", "client", "known_agents")
_WHAT: Final = "a list of agents, each with `name` and `url`"
_DIALECT: Final = "hermes"

_SHOWN: Final = frozenset(("name", "url", "type"))
_BEARER: Final = "bearer"
_NONE: Final = "none"
_HOW_TO_NAME: Final = "write `token_env: NAME`, and set the variable NAME to the token"
_NO_OAUTH: Final = (
    "it needs OAuth 2, and such a file does not name the issuer: write an [agents] table of this name with"
    " `auth.oauth2`"
)


class KnownAgentAuth(Table):
    """`auth` of an entry."""

    model_config = ConfigDict(extra="ignore")

    type: Text = Field(default=_BEARER, description="the kind of credential")
    token_env: TokenVariable | None = Field(default=None, description="the variable that holds the token")


class KnownAgent(Table):
    """An entry."""

    model_config = ConfigDict(extra="ignore")

    name: Text = Field(description="its name")
    url: HttpUrl = Field(description="its base URL")
    auth: KnownAgentAuth | None = Field(default=None, description="what it is shown to be let in")
    token_env: TokenVariable | None = Field(default=None, description="the variable that holds the token")


def read_known_agents(path: Path, environment: Mapping[str, str]) -> ImportedFile[AgentTable]:
    """Read a Hermes configuration, with the faults of agents that cannot be used.

    Raises:
        ConfigError: the file cannot be read, is no YAML, exceeds a limit, or holds no list of named agents.
    """
    document = read_yaml(path, "the known agents", _AGENTS, _is_shown)
    if _AGENTS not in document.positions:
        raise ConfigError([Diagnostic(path, f"it holds no `{'.'.join(_AGENTS)}`, {_WHAT}")])
    entries = document.data[_AGENTS[0]][_AGENTS[1]][_AGENTS[2]]
    if not isinstance(entries, list):
        raise ConfigError([document.diagnostic(ConfigFault(_AGENTS, f"`{_AGENTS[-1]}` takes {_WHAT}"))])
    if nameless := [*_nameless(entries)]:
        raise ConfigError(document.diagnostics(nameless))
    reading = ReadingContext(path.absolute().parent, environment)
    file: ImportedFile[AgentTable] = ImportedFile(document)
    for index, entry in enumerate(entries):
        file.add(entry["name"], (*_AGENTS, index), *_agent(entry, reading))
    return file


def _is_shown(path: KeyPath, text: str) -> bool:
    """Whether a value of an entry is certainly no secret. A value of `token_env` that is no variable name may be the
    token."""
    if path[-1] == "token_env":
        return VARIABLE_NAME.fullmatch(text) is not None
    return path[-1] in _SHOWN


def _nameless(entries: list[Any]) -> Iterator[ConfigFault]:
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            yield ConfigFault((*_AGENTS, index), f"`{_AGENTS[-1]}` takes {_WHAT}")
        elif not isinstance(name := entry.get("name"), str) or not table_name(name):
            yield ConfigFault(
                (*_AGENTS, index), "an agent needs a `name` with a letter or digit", on_key=True
            )


def _agent(
    entry: dict[str, Any], reading: ReadingContext
) -> tuple[AgentTable | None, list[ConfigFault], str]:
    """The agent of an entry; or its faults, with paths in the entry; or why it is left out."""
    auth = entry.get("auth")
    if isinstance(auth, str):  # only the type
        entry = {**entry, "auth": {"type": auth}}
    auth_table = entry["auth"] if isinstance(entry.get("auth"), dict) else {}
    scheme = str(auth_table.get("type") or "").lower()
    if scheme.startswith("oauth"):
        return None, [], _NO_OAUTH
    if faults := [*_structure_faults(entry, auth_table, scheme)]:
        return None, faults, ""
    try:
        agent = KnownAgent.model_validate(entry, context=reading)
    except ValidationError as exc:
        return None, validation_faults_of(exc, tidied(KnownAgent.model_json_schema()), entry), ""
    token = None if scheme == _NONE else (agent.auth and agent.auth.token_env) or agent.token_env
    table = {"card": agent.url, "dialect": _DIALECT, **({"auth": {"bearer": token}} if token else {})}
    return AgentTable.model_validate(table, context=reading), [], ""


def _structure_faults(
    entry: Mapping[str, Any], auth: Mapping[str, Any], scheme: str
) -> Iterator[ConfigFault]:
    if entry.get("url") is None:
        yield ConfigFault((), f"`{entry['name']}` needs `url`", on_key=True)
    if scheme not in ("", _BEARER, _NONE):
        message = "`type` takes bearer or none: other credentials are not supported"
        yield ConfigFault(("auth", "type"), message, _HOW_TO_NAME)
    elif auth and scheme != _NONE and auth.get("token_env") is None and entry.get("token_env") is None:
        yield ConfigFault(
            ("auth",), f"`auth` of `{entry['name']}` needs `token_env`", _HOW_TO_NAME, on_key=True
        )
