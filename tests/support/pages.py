"""What stands in the pages of the documentation: their blocks, and the lines that are typed at a prompt. Pure.

A block is written to a file when the line above it ends with that file's name: "This is `bridge.toml`:". After
"add this to `bridge.toml`:" it goes to the end of the file instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import ROOT

PAGES = sorted(
    [
        *(
            ROOT / name
            for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mappings/README.md")
        ),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"`([\w./-]+)`[^`]*:$")
_ADDS = re.compile(r"\b[Aa]dd this to `[^`]+`:$")
_EXIT_CODE = re.compile(r"\s+# .*exit code (\d+)$")
_REMARK = re.compile(r"\s+# .*$")


@dataclass(frozen=True)
class Block:
    """A block between fences."""

    page: Path
    language: str
    text: str
    file: str | None = None
    """What it is written to."""
    adds: bool = False
    """Whether it goes to the end of that."""

    @property
    def name(self) -> str:
        """What a person would call it."""
        first = next((line for line in self.text.splitlines() if line.strip()), "")
        return f"{self.page.relative_to(ROOT)}: {first[:60]}"


@dataclass(frozen=True)
class Typed:
    """A line that is typed at a prompt, and what the page says comes of it."""

    line: str
    exit_code: int = 0
    says: tuple[str, ...] = ()


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in _FENCE.finditer(text)]


def typed_in(block: Block) -> list[Typed]:
    """What is typed in a block of a console, each with the lines below it."""
    return [_typed(prompt) for prompt in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]]


def all_typed(pages: Iterable[Path]) -> Iterator[tuple[Block, Typed]]:
    """Everything that is typed somewhere."""
    for page in pages:
        for block in blocks_of(page):
            if block.language == "console":
                yield from ((block, typed) for typed in typed_in(block))


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    above = text[: found.start()].rstrip().rpartition("\n")[2]
    named = _NAMED.search(above) if found[1] != "console" else None
    return Block(page, found[1], found[2], named[1] if named else None, _ADDS.search(above) is not None)


def _typed(prompt: str) -> Typed:
    line, *says = prompt.splitlines()
    while line.endswith("\\"):
        line = f"{line[:-1].rstrip()} {says.pop(0).strip()}"
    code = _EXIT_CODE.search(line)
    said = tuple(words for one in says if (words := " ".join(one.split())) and words != "...")
    return Typed(_REMARK.sub("", line), int(code[1]) if code else 0, said)
