"""The guide's blocks that configure a proxy, and where what they serve is reached. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.command import ROOT
from tests.support.pages import Block, blocks_of

GUIDE = ROOT / "docs" / "guides" / "behind-nginx-or-caddy.md"


@dataclass(frozen=True)
class Case:
    """A block of the guide, and where what it serves is reached."""

    block: Block
    base: str

    @property
    def host(self) -> str:
        return self.base.removeprefix("https://").partition("/")[0]

    @property
    def program(self) -> str:
        return "nginx" if self.block.language == "nginx" else "caddy"


def cases() -> list[Case]:
    """The blocks of the guide that configure a proxy."""
    found = [block for block in blocks_of(GUIDE) if block.language in ("nginx", "caddyfile")]
    return [Case(block, _base_of(block.text)) for block in found]


def _base_of(text: str) -> str:
    (host,) = set(re.findall(r"[a-z]+\.example\.com", text))
    path = re.search(r"(?:location|handle_path) (/[a-z]+)/", text)
    return f"https://{host}{path[1] if path else ''}"
