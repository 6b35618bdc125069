"""`install claude-desktop --bundle`: writes an MCP bundle with the modules of this installation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any, Final

from bridge.cli.expose import names_of_agents_options
from bridge.cli.install import from_file
from bridge.errors import UsageError
from bridge.hosts import bundle, places
from bridge.version import __version__

_HOST: Final = "claude-desktop"
_OF_FILES: Final = ("add", "remove", "path", "create", "dry_run", "check", "links")
"""The options of `install` that concern the host's file."""
_SECRETS: Final = ("bearer", "api_key", "header", "cert", "key", "ca")
_PACKAGE: Final = "bridge"
_LEFT_OUT: Final = "__pycache__"


def write(options: dict[str, Any]) -> int:
    """Write the bundle.

    Raises:
        UsageError: an option does not go with a bundle, a secret would be in it, or the file cannot be written.
    """
    from bridge.cli import render

    _require_alone(options)
    made, files = _of_file(options) if from_file.is_meant(options) else _of_agent(options)
    target = Path(options["bundle"]).expanduser()
    try:
        target.write_bytes(bundle.archive_of(made, {**files, **_modules()}))
    except OSError as exc:
        raise UsageError(f"{target} cannot be written: {exc.strerror}") from exc
    render.say(
        f"{target} is a bundle with {made.name}. Open it with {places.HOSTS[_HOST].title}, which then asks for:"
    )
    for field in made.fields.values():
        render.say(f"  {field.title}{', which it keeps as a secret' if field.is_secret else ''}")
    return 0


def _require_alone(options: Mapping[str, Any]) -> None:
    if options["host"] != _HOST:
        raise UsageError(f"--bundle is for {_HOST}")
    for option in (name for name in _OF_FILES if options[name]):
        raise UsageError(
            f"--bundle writes no file of a host: leave out --{option.replace('_', '-').replace('path', 'file')}"
        )
    if options["scope"] == places.InstallScope.PROJECT:
        raise UsageError("--bundle writes no file of a host: leave out --scope")
    for option in (name for name in _SECRETS if options[name]):
        raise UsageError(
            f"a bundle has no secrets, and {places.HOSTS[_HOST].title} asks for them: leave out"
            f" --{option.replace('_', '-')}"
        )
    if options["face"] and not from_file.is_meant(options):
        raise UsageError("--face names an MCP server of a configuration file: name that file as well")


def _of_agent(options: dict[str, Any]) -> tuple[bundle.Bundle, Mapping[str, bytes]]:
    from bridge.cli.install.command import exposed_from, name_for

    if len(options["urls"]) > 1:
        raise UsageError("a bundle asks for the address of one agent: for several, name a configuration file")
    if re.search(r"[/\\]|\.toml$", options["mapping"] or ""):
        raise UsageError("a bundle has no file of yours: --mapping takes a name")
    url = options["urls"][0] if options["urls"] else None
    placed = {**options, "urls": (url or "https://agent.example.com",)}
    words = exposed_from(placed, places.HOSTS[_HOST]).arguments(str)[1:-1]
    name = options["name"] or (name_for(options) if url else "mcp-a2a")
    return bundle.of_agent(name, __version__, words, url), {}


def _of_file(options: dict[str, Any]) -> tuple[bundle.Bundle, Mapping[str, bytes]]:
    from bridge.cli.install.command import name_for
    from bridge.config.load import load
    from bridge.config.tables.profile import mappings_folder
    from bridge.config.text.secrets import secrets_in
    from bridge.pinned.lock import lock_beside

    for option in (name for name in names_of_agents_options() if options[name]):
        raise UsageError(
            f"the file itself has the options for its agents: leave out --{option.replace('_', '-')}"
        )
    file = Path(from_file.path_of(options))
    loaded = load(file)
    shipped = mappings_folder()
    absent = {lock_beside(file)} if loaded.lock is None else set()
    named = sorted(str(one) for one in loaded.files - {file} - absent if shipped not in one.parents)
    if named:
        raise UsageError(f"a bundle has one file, and {file.name} names others: {', '.join(named)}")
    variables = sorted({one.reference.removeprefix("env:") for one in secrets_in(loaded.config)})
    face = from_file.face_of(options)
    made = bundle.of_file(name_for(options), __version__, face, variables)
    return made, {bundle.CONFIGURATION: file.read_bytes()}


def _modules() -> dict[str, bytes]:
    """The modules of this installation and what they need, by their paths in the archive."""
    from bridge.config.tables.profile import mappings_folder

    needed = [one for one in requires("mcp-a2a") or () if "extra ==" not in one]
    package = Path(bundle.__file__).parents[1]
    return {
        bundle.PROJECT: bundle.project_of(__version__, needed).encode(),
        bundle.ENTRY: Path(__file__).with_name("bundle_start.py").read_bytes(),
        **dict(_files_below(package, f"{bundle.FOLDER}/{_PACKAGE}")),
        **dict(_files_below(mappings_folder(), f"{bundle.FOLDER}/{_PACKAGE}/mappings")),
    }


def _files_below(folder: Path, place: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _LEFT_OUT not in path.parts:
            yield f"{place}/{path.relative_to(folder).as_posix()}", path.read_bytes()
