"""Ready mappings: the phrases of well-known tool servers, one file of `mappings/servers` for each server.

A ready mapping adds words, and says which tools only read. It cannot rename or hide a tool, or remove a confirmation.
The package in the operator's own command chooses the mapping, never the server itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from bridge.config.check.schema_nodes import tidied
from bridge.config.check.validation_faults import validation_faults_of, without_guesses
from bridge.config.tables.profile import mappings_folder
from bridge.config.tables.values import Phrases, Table, Text, Texts
from bridge.config.text.document import read_toml
from bridge.errors import ConfigError
from bridge.text.command_packages import Package, package_of
from bridge.translate.overrides import SkillOverride

FOLDER: Final = "servers"


class ReadyTool(Table):
    """`[tools.NAME]`: the words for one tool."""

    phrases: Phrases = Field(default=(), description="sentences that call it")
    examples: Texts = Field(default=(), description="sentences for the card")
    read_only: bool | None = Field(default=None, description="whether it changes nothing")
    by_name: bool | None = Field(
        default=None, description="false: its name calls it in no sentence, since another tool replaces it"
    )


class ReadyMappingFile(Table):
    """A file of `mappings/servers`."""

    npm: Text | None = Field(default=None, description="the server's package of npm")
    pypi: Text | None = Field(default=None, description="the server's package of PyPI")
    command: Text = Field(description="the command that the package installs")
    image: Text | None = Field(default=None, description="the server's image on Docker Hub")
    tools: dict[Text, ReadyTool] = Field(description="its tools, by name")

    def is_for(self, package: Package) -> bool:
        """Whether a package is the server."""
        names = {"npm": self.npm, "pypi": self.pypi, "command": self.command, "image": self.image}
        return names[package.kind] == package.name and package.command in ("", self.command)


@dataclass(frozen=True, slots=True)
class ReadyMapping:
    """The ready mapping of a tool server."""

    name: str
    """The name of its file, such as `filesystem`."""
    tools: Mapping[str, SkillOverride]
    """The phrases, the examples, and whether the tool only reads, by the names of tools."""


def ready_mapping_for(command: Sequence[str]) -> ReadyMapping | None:
    """The ready mapping of the server that a command starts; None if there is none.

    Raises:
        ConfigError: a file of `mappings/servers` has mistakes.
    """
    package = package_of(command)
    if package is None:
        return None
    for name, file in ready_mapping_files().items():
        if file.is_for(package):
            return ReadyMapping(name, {tool: _rule(words) for tool, words in file.tools.items()})
    return None


@cache
def ready_mapping_files() -> Mapping[str, ReadyMappingFile]:
    """All ready mappings, by name.

    Raises:
        ConfigError: a file has mistakes.
    """
    places = sorted((mappings_folder() / FOLDER).glob("*.toml"))
    return {place.stem: _file(place) for place in places}


def _file(place: Path) -> ReadyMappingFile:
    document = read_toml(place, "the ready mapping")
    try:
        return ReadyMappingFile.model_validate(document.data)
    except ValidationError as exc:
        schema = tidied(ReadyMappingFile.model_json_schema())
        faults = without_guesses(validation_faults_of(exc, schema, document.data))
        raise ConfigError(document.diagnostics(faults)) from exc


def _rule(words: ReadyTool) -> SkillOverride:
    return SkillOverride(
        phrases=words.phrases or None,
        examples=words.examples or None,
        read_only=words.read_only,
        by_name=words.by_name,
    )
