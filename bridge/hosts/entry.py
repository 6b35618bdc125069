"""Makes the entry of a server in a host's file: a command that starts `mcp-a2a` in any folder, without a shell. Pure.

A host may start the command in another folder and with a short PATH. Unless the host itself starts from a shell, it has
none of the shell's variables. So the command and the files that it names are absolute paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from bridge.errors import UsageError
from bridge.hosts.places import Host
from bridge.text.jsonvalues import JsonObject

COMMAND: Final = "mcp-a2a"
_VERB: Final = "expose"
_VERB_OF_FILES: Final = "serve"
_STDIO: Final = "--stdio"

SECRET_OPTIONS: Final = ("--bearer", "--api-key", "--header", "--cert")
"""The options with credentials, which are sent to every agent of an entry."""
_TAKING: Final = frozenset(
    {
        *SECRET_OPTIONS,
        "--key",
        "--ca",
        "--trust",
        "--dialect",
        "--mapping",
        "--granularity",
        "--answer-within-seconds",
        "--name",
    }
)
"""The options of `expose` that take a value."""

_YAML_TIMEOUT_SECONDS: Final = 300
"""The timeout in the examples of Goose's documentation."""


@dataclass(frozen=True)
class Exposed:
    """The agents that a server exposes, with the options of `expose`."""

    urls: tuple[str, ...]
    bearer: str | None = None
    headers: tuple[str, ...] = ()
    api_key: str | None = None
    trusted: tuple[str, ...] = ()
    """Further origins that may receive the credentials."""
    mapping: str | None = None
    """A mapping profile, by name or by file."""
    granularity: str | None = None
    answer_within_seconds: float | None = None
    allow_private: bool = False
    dialect: str | None = None
    """The version of A2A that the agents speak."""
    certificate: str | None = None
    """The file of our client certificate for the agents."""
    key: str | None = None
    """The file of the certificate's private key."""
    ca: str | None = None
    """The file of the authorities that may issue the agents' certificates."""

    def arguments(self, resolve: Callable[[str], str]) -> tuple[str, ...]:
        """The arguments of the command; `resolve` makes a file's path absolute."""
        options: list[str] = []
        if self.bearer is not None:
            options += ["--bearer", _absolute(self.bearer, resolve)]
        for header in self.headers:
            name, _, value = header.partition("=")
            options += ["--header", f"{name}={_absolute(value, resolve)}"]
        if self.api_key is not None:
            options += ["--api-key", _absolute(self.api_key, resolve)]
        for option, file in (("--cert", self.certificate), ("--key", self.key), ("--ca", self.ca)):
            if file is not None:
                options += [option, resolve(file)]
        for origin in self.trusted:
            options += ["--trust", origin]
        if self.allow_private:
            options.append("--allow-private")
        if self.dialect is not None:
            options += ["--dialect", self.dialect]
        if self.mapping is not None:
            is_file = self.mapping.endswith(".toml") or "/" in self.mapping or "\\" in self.mapping
            options += ["--mapping", resolve(self.mapping) if is_file else self.mapping]
        if self.granularity is not None:
            options += ["--granularity", self.granularity]
        if self.answer_within_seconds is not None:
            options += ["--answer-within-seconds", f"{self.answer_within_seconds:g}"]
        return (_VERB, *options, *self.urls)

    def from_environment(self) -> list[str]:
        """The environment variables that hold the secrets."""
        values = [
            self.bearer or "",
            self.api_key or "",
            *(header.partition("=")[2] for header in self.headers),
        ]
        return [value.removeprefix("env:") for value in values if value.startswith("env:")]


@dataclass(frozen=True)
class ConfiguredServer:
    """An MCP server of a configuration file."""

    file: str
    """The absolute path of the file."""
    face: str
    """The name of the server in the file."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the command."""
        return (_VERB_OF_FILES, self.file, _STDIO, self.face)

    @property
    def offers(self) -> tuple[str, ...]:
        """The identity of the server: its file and its name there."""
        return (self.file, self.face)


def require_readable(exposed: Exposed, host: Host, typed_values: Container[str] = ()) -> None:
    """Refuse values that this host would not pass on unchanged. The host asks its user for the variables in
    `typed_values`.

    Raises:
        UsageError: a secret is in a variable that the host does not see, or in a URL; or the host would take a text
            for a variable.
    """
    variables = [name for name in exposed.from_environment() if name not in typed_values]
    if variables and not host.from_shell:
        raise UsageError(
            f"{host.title} does not start from a shell and would not see {variables[0]}: "
            f"keep the secret in a file, and give file:PATH in place of env:{variables[0]}"
        )
    for url in exposed.urls:
        if "@" in re.split(r"[/?#]", url.partition("://")[2])[0]:
            raise UsageError(
                "a password in a URL would stand in the host's file: give --bearer or --header instead"
            )
    files = (exposed.mapping, exposed.certificate, exposed.key, exposed.ca)
    texts = (*exposed.urls, *exposed.headers, *exposed.trusted, *filter(None, files))
    if any(host.reserved in text for text in texts):
        raise UsageError(f"{host.title} reads {host.reserved} as the beginning of a variable: leave it out")


def entry_for(
    program: Sequence[str],
    arguments: Sequence[str],
    host: Host,
    variables: Sequence[str] = (),
    typed_values: Mapping[str, str] = MappingProxyType({}),
) -> JsonObject:
    """The entry of a server in the host's file. The server reads secrets from `variables`. `typed_values` has the
    variables whose values the user types, each with the host's placeholder for the value."""
    typed: JsonObject = {"type": "stdio"} if host.typed else {}
    passed_on = {name: host.variable.format(name) for name in variables if host.variable}
    named: JsonObject = {**passed_on, **typed_values}
    passed: JsonObject = {"env": named} if named else {}
    return {**typed, "command": program[0], "args": [*program[1:], *arguments], **passed}


def yaml_for(name: str, entry: JsonObject, host: Host) -> str:
    """The block for a host's YAML file. The values are JSON, which is valid YAML."""
    lines = {
        "type": "stdio",
        "name": name,
        "enabled": True,
        "cmd": entry["command"],
        "args": entry["args"],
        "envs": {},
        "timeout": _YAML_TIMEOUT_SECONDS,
    }
    written = (f"    {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in lines.items())
    return f"{host.servers_key}:\n  {name}:\n{''.join(written)}"


def installed_program(executable: PurePath, is_file: Callable[[PurePath], bool]) -> tuple[str, ...]:
    """The command that starts this installation: `mcp-a2a`, or Python if there is no such command.

    The command is in the folder of Python, or on Windows possibly in its subfolder `Scripts`. Python gets `-P`, because
    a host may start it in a project with a folder named `bridge`.
    """
    for name in (COMMAND, f"{COMMAND}.exe", f"Scripts/{COMMAND}.exe"):
        if is_file(command := executable.parent / name):
            return (str(command),)
    return (str(executable), "-P", "-m", "bridge")


def is_passing(executable: PurePath) -> bool:
    """Whether `uvx` made this installation for a single run, in a cache that is cleaned occasionally."""
    return any(part.startswith("archive-v") for part in executable.parts)


def offered_by(entry: JsonObject) -> tuple[str, ...] | None:
    """What an entry of ours offers: the URLs of agents, or a file and a server in it. None for other entries."""
    return urls_of(entry) or file_of(entry)


def urls_of(entry: JsonObject) -> tuple[str, ...] | None:
    """The URLs of the agents that an entry exposes; None if the entry does not start `mcp-a2a expose`."""
    words = _words_behind(_VERB, entry)
    return None if words is None else tuple(words[at] for at in _places_of_urls(words))


def with_urls(entry: JsonObject, urls: Sequence[str]) -> JsonObject:
    """An entry that exposes further agents, with the same options."""
    arguments = entry["args"]
    assert isinstance(arguments, list)
    return {**entry, "args": [*arguments, *urls]}


def without_urls(entry: JsonObject, is_meant: Callable[[str], bool]) -> JsonObject:
    """An entry that exposes agents, without the agents for whose URL `is_meant` is true."""
    words, arguments = _words_behind(_VERB, entry) or (), entry["args"]
    assert isinstance(arguments, list)
    first = len(arguments) - len(words)
    gone = {first + at for at in _places_of_urls(words) if is_meant(words[at])}
    return {**entry, "args": [word for at, word in enumerate(arguments) if at not in gone]}


def options_of(entry: JsonObject) -> tuple[tuple[str, str], ...]:
    """The options with values of an entry that exposes agents. They apply to all its agents."""
    return options_in(_words_behind(_VERB, entry) or ())


def options_in(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The options with values among the arguments of `expose`."""
    return tuple((words[at], words[at + 1]) for at in range(len(words) - 1) if words[at] in _TAKING)


def _places_of_urls(words: Sequence[str]) -> Iterator[int]:
    """The indexes of the agents' URLs: words that look like URLs and are no option's value."""
    for at, word in enumerate(words):
        if word.startswith(("http://", "https://")) and (at == 0 or words[at - 1] not in _TAKING):
            yield at


def file_of(entry: JsonObject) -> tuple[str, ...] | None:
    """The configuration file and the server that an entry serves; None for other entries."""
    match _words_behind(_VERB_OF_FILES, entry):
        case (file, option, face) if option == _STDIO:
            return ConfiguredServer(file, face).offers
        case _:
            return None


def _words_behind(verb: str, entry: JsonObject) -> tuple[str, ...] | None:
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not isinstance(arguments, list) or verb not in arguments:
        return None
    at = arguments.index(verb)
    words = [command, *map(str, arguments[:at])]
    if not any(re.split(r"[/\\]", word)[-1] in (COMMAND, f"{COMMAND}.exe", "bridge") for word in words):
        return None
    return tuple(map(str, arguments[at + 1 :]))


def _absolute(value: str, resolve: Callable[[str], str]) -> str:
    source, colon, path = value.partition(":")
    return f"file:{resolve(path)}" if colon and source == "file" else value
