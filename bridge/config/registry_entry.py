"""What an entry of an MCP registry (`server.json`) becomes in the configuration file. Pure.

A stranger wrote the entry. So the bridge starts packages only with the programs of `_RUNNERS`, and only in an exact
version. A secret becomes a reference to a variable of the environment. The person who configures the bridge confirms
the result.

Spec: MCP registry, `server.json` of 2025-12-11 and the registry API of 2025-12-01.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from bridge.config.text.masking import VARIABLE_NAME, is_secret_name
from bridge.config.text.secrets import is_secret_header
from bridge.errors import PeerError, UsageError, echoed
from bridge.text.jsonvalues import JsonObject

NAME: Final = re.compile(r"[a-zA-Z0-9.-]{1,150}/[a-zA-Z0-9._-]{1,150}")
"""The name of a server in a registry."""

Ask = Callable[["EntryQuestion"], Sequence[str]]
"""Answers a question with values. Without a value, the input is left out."""


class _EntryTable(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class _Input(_EntryTable):
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    is_repeated: bool = False
    format: str = "string"
    value: str | None = None
    default: str | None = None
    choices: tuple[str, ...] = ()
    variables: dict[str, _Input] = Field(default_factory=dict)
    name: str = ""
    value_hint: str = ""
    type: str = ""

    @property
    def key(self) -> str:
        """What the input is called in questions."""
        return self.name or self.value_hint or "argument"


class _EntryTransport(_EntryTable):
    type: str
    url: str = ""
    headers: tuple[_Input, ...] = ()
    variables: dict[str, _Input] = Field(default_factory=dict)


class _EntryPackage(_EntryTable):
    registry_type: str
    identifier: str
    transport: _EntryTransport
    version: str = ""
    registry_base_url: str = ""
    file_sha256: str = Field(default="", alias="fileSha256")
    runtime_hint: str = ""
    runtime_arguments: tuple[_Input, ...] = ()
    package_arguments: tuple[_Input, ...] = ()
    environment_variables: tuple[_Input, ...] = ()


class _EntryServer(_EntryTable):
    name: str
    version: str
    description: str = ""
    packages: tuple[_EntryPackage, ...] = ()
    remotes: tuple[_EntryTransport, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryQuestion:
    """A value that the person who configures the bridge chooses."""

    key: str
    description: str
    default: str | None
    choices: tuple[str, ...]
    is_required: bool


@dataclass(frozen=True)
class Proposal:
    """What the file gets for a choice of an entry."""

    keys: Mapping[str, Any]
    """The keys of `[tool_servers.NAME]`."""
    digest: str
    """The digest of the package or the image, in words."""
    variables: tuple[str, ...]
    """The variables of the environment that hold secrets."""


@dataclass(frozen=True)
class EntryChoice:
    """A package or a remote server of an entry."""

    words: str
    """What it is, for a person."""
    obstacle: str
    """Why the bridge cannot use it; empty if it can."""
    of: _EntryPackage | _EntryTransport = field(repr=False)


@dataclass(frozen=True)
class RegistryEntry:
    """An entry of a registry."""

    name: str
    version: str
    description: str
    status: Literal["active", "deprecated"]
    sha256: str
    """The SHA-256 of the entry as canonical JSON (RFC 8785), in hexadecimal."""
    choices: tuple[EntryChoice, ...]


def entry_from(answer: JsonValue, name: str) -> RegistryEntry:
    """The entry in the answer of a registry about the server of a name.

    Raises:
        PeerError: the answer is not an entry, or it is about another server.
        UsageError: the registry says that the entry was deleted.
    """
    server = answer.get("server") if isinstance(answer, dict) else None
    try:
        read = _EntryServer.model_validate(server)
    except ValidationError as exc:
        where = ".".join(map(str, exc.errors()[0]["loc"]))
        raise PeerError(
            f"the registry answered with something that is no entry of a server: {where}"
        ) from exc
    if not isinstance(answer, dict) or read.name != name:
        raise PeerError(f"the registry answered with {echoed(read.name)} in place of {name}")
    status = _status(answer)
    if status == "deleted":
        raise UsageError(f"the registry says that {name} {read.version} was deleted")
    choices = [*map(_package_choice, read.packages), *map(_remote_choice, read.remotes)]
    digest = hashlib.sha256(rfc8785.dumps(server)).hexdigest()
    state: Literal["active", "deprecated"] = "deprecated" if status == "deprecated" else "active"
    return RegistryEntry(name, read.version, read.description, state, digest, tuple(choices))


def _status(answer: JsonObject) -> str:
    meta = answer.get("_meta")
    official = meta.get("io.modelcontextprotocol.registry/official") if isinstance(meta, dict) else None
    return str(official.get("status", "active")) if isinstance(official, dict) else "active"


# What can be started


@dataclass(frozen=True, slots=True)
class _PackageRunner:
    """What starts packages of one type."""

    program: str
    before: tuple[str, ...]
    """The words after the program."""
    spec: str
    """The package with its version."""
    identifier: re.Pattern[str]
    version: re.Pattern[str] | None


_EXACT: Final = re.compile(r"\d[\w.+!-]{0,100}", re.ASCII)

_RUNNERS: Final[Mapping[str, _PackageRunner]] = {
    "npm": _PackageRunner(
        "npx",
        ("-y",),
        "{identifier}@{version}",
        re.compile(r"(?:@[\w.-]+/)?[A-Za-z0-9_][\w.-]*", re.ASCII),
        _EXACT,
    ),
    "pypi": _PackageRunner(
        "uvx",
        (),
        "{identifier}=={version}",
        re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII),
        _EXACT,
    ),
    "oci": _PackageRunner(
        "docker",
        ("run", "-i", "--rm"),
        "{identifier}",
        re.compile(r"[A-Za-z0-9][\w./:-]*(?:@sha256:[a-f0-9]{64})?", re.ASCII),
        None,
    ),
}


def _package_choice(package: _EntryPackage) -> EntryChoice:
    version = f" {package.version}" if package.version else ""
    words = f"{package.registry_type} package {package.identifier}{version}"
    runner = _RUNNERS.get(package.registry_type)
    if package.registry_base_url and runner is not None:
        words += (
            f" of {package.registry_base_url} ({runner.program} asks the registry that it is configured for)"
        )
    return EntryChoice(words, _package_obstacle(package), package)


def _package_obstacle(package: _EntryPackage) -> str:
    runner = _RUNNERS.get(package.registry_type)
    if package.registry_type == "mcpb":
        return (
            "an MCP bundle is for hosts: unpack the file (a zip), and name the command of its manifest.json"
        )
    if runner is None:
        return f"the bridge starts packages of {', '.join(_RUNNERS)}"
    if package.transport.type != "stdio":
        return "it serves HTTP by itself: start it, and name its URL with --server"
    if not runner.identifier.fullmatch(package.identifier):
        return "its identifier is not the name of a package"
    if runner.version and not runner.version.fullmatch(package.version):
        return "it names no exact version"
    if package.registry_type == "oci" and ":" not in package.identifier.rpartition("/")[2]:
        return "it names neither a tag nor a digest"
    if package.runtime_arguments and package.runtime_hint not in ("", runner.program):
        return f"its arguments are for {package.runtime_hint}, and the bridge starts it with {runner.program}"
    arguments = (*package.runtime_arguments, *package.package_arguments)
    if secret := next((argument.key for argument in arguments if _is_secret(argument)), None):
        return f"its argument {secret} is a secret, and others on the machine can read arguments"
    return ""


def _remote_choice(remote: _EntryTransport) -> EntryChoice:
    words = f"remote server {remote.url} ({remote.type})"
    return EntryChoice(words, _remote_obstacle(remote), remote)


def _remote_obstacle(remote: _EntryTransport) -> str:
    if remote.type not in ("streamable-http", "sse"):
        return "the bridge speaks streamable-http and sse"
    if not remote.url.startswith(("https://", "http://")):
        return "its URL does not begin with https://"
    if any(_is_secret(variable) for variable in remote.variables.values()):
        return "its URL has a secret"
    return ""


def _is_secret(value_input: _Input) -> bool:
    return value_input.is_secret or any(variable.is_secret for variable in value_input.variables.values())


# What is written


def proposed(choice: EntryChoice, ask: Ask) -> Proposal:
    """What the file gets for a choice without an obstacle. `ask` answers what the entry leaves open.

    Raises:
        UsageError: an input has no usable name, or a needed value is missing.
    """
    if isinstance(choice.of, _EntryPackage):
        return _package_proposal(choice.of, ask)
    return _remote_proposal(choice.of, ask)


def _package_proposal(package: _EntryPackage, ask: Ask) -> Proposal:
    runner = _RUNNERS[package.registry_type]
    plain, secrets = _settings(package.environment_variables, ask, _is_variable_name, is_secret_name)
    env: dict[str, Any] = plain | {name: {"env": name} for name in secrets}
    command = [runner.program, *runner.before]
    if package.registry_type == "oci":  # docker passes on only the variables that it is told of
        command += [word for name in env for word in ("-e", name)]
    command += _words(package.runtime_arguments, ask)
    command.append(runner.spec.format(identifier=package.identifier, version=package.version))
    command += _words(package.package_arguments, ask)
    keys: dict[str, Any] = {"command": command} | ({"env": env} if env else {})
    return Proposal(keys, _digest_words(package), tuple(secrets))


def _digest_words(package: _EntryPackage) -> str:
    if package.file_sha256:
        return f"package sha256:{package.file_sha256}"
    if "@sha256:" in package.identifier:
        return f"image sha256:{package.identifier.rpartition(':')[2]}"
    return "the entry has no digest of the package"


def _remote_proposal(remote: _EntryTransport, ask: Ask) -> Proposal:
    keys: dict[str, Any] = {"url": _filled(remote.url, remote.variables, ask)}
    if remote.type == "sse":
        keys["transport"] = "sse"
    plain, secrets = _settings(remote.headers, ask, _is_header_name, is_secret_header)
    variables = {name: _variable_of(name) for name in secrets}
    headers: dict[str, Any] = dict(plain)
    for name, header in secrets.items():
        if name.lower() == "authorization" and (header.value or "").startswith("Bearer {"):
            keys["auth"] = {"bearer": {"env": variables[name]}}
        else:
            headers[name] = {"env": variables[name]}
    if headers:
        keys["headers"] = headers
    return Proposal(keys, "a remote server has no digest", tuple(variables.values()))


def _variable_of(header: str) -> str:
    return re.sub(r"\W", "_", header, flags=re.ASCII).upper()


def _is_variable_name(name: str) -> bool:
    return re.fullmatch(VARIABLE_NAME, name) is not None


def _is_header_name(name: str) -> bool:
    return re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is not None


def _settings(
    inputs: Iterable[_Input], ask: Ask, is_name: Callable[[str], bool], names_secret: Callable[[str], bool]
) -> tuple[dict[str, str], dict[str, _Input]]:
    """The plain values of variables or headers, by name, and the inputs that are secrets."""
    plain: dict[str, str] = {}
    secrets: dict[str, _Input] = {}
    for setting in inputs:
        if not is_name(setting.name):
            raise UsageError(f"the entry has a variable or header with the name {echoed(setting.name)!r}")
        if _is_secret(setting) or names_secret(setting.name):
            secrets[setting.name] = setting
        elif values := _values(setting, ask):
            plain[setting.name] = values[0]
    return plain, secrets


def _words(arguments: Iterable[_Input], ask: Ask) -> Iterator[str]:
    """The words of arguments on a command line."""
    for argument in arguments:
        is_flag = argument.type == "named" and argument.format == "boolean"
        for value in _values(argument, ask):
            if argument.type == "named":
                yield argument.name
            if not is_flag:
                yield value


def _values(value_input: _Input, ask: Ask) -> Sequence[str]:
    if value_input.value is not None:
        return [_filled(value_input.value, value_input.variables, ask)]
    question = EntryQuestion(
        value_input.key,
        value_input.description,
        value_input.default,
        value_input.choices,
        value_input.is_required,
    )
    values = ask(question)
    if value_input.choices and (foreign := [value for value in values if value not in value_input.choices]):
        raise UsageError(f"{value_input.key} is one of {', '.join(value_input.choices)}, not {foreign[0]}")
    if value_input.is_required and not values:
        raise UsageError(
            f"{value_input.key} needs a value: {value_input.description or 'the entry requires it'}"
        )
    is_false = value_input.format == "boolean" and value_input.type == "named"
    return [value for value in values if not (is_false and value == "false")]


def _filled(template: str, variables: Mapping[str, _Input], ask: Ask) -> str:
    """A template with the values of its variables. A name in braces that is no variable stays as it is."""

    def value_of(reference: re.Match[str]) -> str:
        if (variable := variables.get(reference[1])) is None:
            return reference[0]
        return "".join(_values(variable.model_copy(update={"name": reference[1]}), ask)[:1])

    return re.sub(r"\{([\w.-]+)\}", value_of, template)
