"""How this installation of the bridge was made, and the command that adds an extra to it.

`pip install` needs an environment with pip. The environments of `uv tool` and of uv have no pip, pipx hides
its environments, and a host replaces a bundle as a whole. A command never fetches the bridge from another source than
its own, because a name on an index may belong to anybody.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.text.safe_text import shell_word

_PACKAGE: Final = "mcp-a2a"
_UV_RECEIPT: Final = "uv-receipt.toml"
_PIPX_RECEIPT: Final = "pipx_metadata.json"
_BUNDLE_MANIFEST: Final = "manifest.json"
_IN_CACHE: Final = "archive-v"
"""The name of a folder of uv's cache, where `uvx` makes installations for a single run, begins so."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation of the bridge."""

    prefix: Path
    """The folder of its environment."""
    executable: Path
    """Its Python."""
    modules: Path
    """The folder that holds the package `bridge`."""
    has_pip: bool
    source: str | None = None
    """The source that it came from, as the part of a requirement after `@`; None is an index."""

    def adding(self, extra: str) -> str:
        """The command that adds an extra, or words where no command can."""
        if (self.modules.parent / _BUNDLE_MANIFEST).is_file():
            return "a bundle takes no extras; install mcp-a2a with `uv tool install`, and use that"
        if any(part.startswith(_IN_CACHE) for part in self.prefix.parts):
            return f"uvx --from {self._requirement({extra})} mcp-a2a"
        if (self.prefix / _UV_RECEIPT).is_file():
            return f"uv tool install {self._requirement({extra, *self._uv_extras()})}"
        requirement = f"'{_PACKAGE}[{extra}]'"
        if (self.prefix / _PIPX_RECEIPT).is_file():
            return f"pipx runpip {shell_word(self.prefix.name)} install {requirement}"
        if self.has_pip:
            return f"pip install {requirement}"
        return f"uv pip install --python {shell_word(str(self.executable))} {requirement}"

    def _requirement(self, extras: set[str]) -> str:
        source = "" if self.source is None else f" @ {self.source}"
        return shell_word(f"{_PACKAGE}[{','.join(sorted(extras))}]{source}")

    def _uv_extras(self) -> list[str]:
        """The extras that it has already: `uv tool install` would take them out."""
        receipt = tomllib.loads((self.prefix / _UV_RECEIPT).read_text(encoding="utf-8"))
        requirements: list[dict[str, Any]] = receipt.get("tool", {}).get("requirements", [])
        return [
            extra
            for entry in requirements
            if entry.get("name") == _PACKAGE
            for extra in entry.get("extras", [])
        ]


def adding_extra(extra: str) -> str:
    """The command that adds an extra to this installation."""
    here = Installation(
        Path(sys.prefix),
        Path(sys.executable),
        Path(__file__).parents[2],
        importlib.util.find_spec("pip") is not None,
        _source(),
    )
    return here.adding(extra)


def _source() -> str | None:
    """The source in the record of the installer (PEP 610)."""
    try:
        record = json.loads(importlib.metadata.distribution(_PACKAGE).read_text("direct_url.json") or "null")
    except importlib.metadata.PackageNotFoundError:
        return None
    return None if record is None else source_of(record)


def source_of(record: dict[str, Any]) -> str:
    """The source in a `direct_url.json`, as a requirement names it."""
    if (repository := record.get("vcs_info")) is None:
        return str(record["url"])
    revision = repository.get("requested_revision")
    return f"{repository['vcs']}+{record['url']}{f'@{revision}' if revision else ''}"
