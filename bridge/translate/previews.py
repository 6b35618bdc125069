"""Shortens a long text of a result to its beginning, and cuts pages of the rest. Pure.

A page is counted in bytes of UTF-8, ends at the end of a line where one is near, and never within a character. So the
same text always has the same pages, and nothing has to be remembered between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.objects import Part
from bridge.text.jsonvalues import JsonObject
from bridge.translate.blocks import as_json, linked, text_block
from bridge.translate.tool_names import PAGE_TOOL

_LINE_SHARE: Final = 2
"""A page ends with a line if the end of a line is in the last half of the page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a text."""

    text: str
    first_byte: int
    end_byte: int
    """Where the next page begins."""
    whole_bytes: int

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self.end_byte >= self.whole_bytes


def page_of(text: str, first_byte: int, limit_bytes: int) -> Page:
    """The page of a text that begins at a byte. It has at most `limit_bytes`, but at least one character. A beginning
    within a character moves back to the beginning of the character."""
    whole = text.encode(errors="surrogatepass")
    first, size = min(first_byte, len(whole)), len(whole)
    while first < size and first > 0 and _is_within_character(whole[first]):
        first -= 1
    end = min(first + limit_bytes, size)
    while first < end < size and _is_within_character(whole[end]):
        end -= 1
    if end < size and (line := whole.rfind(b"\n", first + limit_bytes // _LINE_SHARE, end)) >= 0:
        end = line + 1
    if end == first < size:
        end = first + 1
        while end < size and _is_within_character(whole[end]):
            end += 1
    return Page(whole[first:end].decode(errors="surrogatepass"), first, end, size)


def preview(part: Part, link: str, limit_bytes: int, *, has_tool: bool) -> list[JsonValue] | None:
    """The blocks in place of a part whose text is too long: the beginning, a sentence that says how to get the rest,
    and a link. None if the part has no text, or a short one. `has_tool` says whether the page tool is offered."""
    if (text := text_in(part)) is None or len(text) * 4 <= limit_bytes:
        return None
    page = page_of(text, 0, limit_bytes)
    if page.is_last:
        return None
    return [
        text_block(page.text),
        text_block(_words_on(page, link, has_tool=has_tool)),
        linked(part, page.whole_bytes, link),
    ]


def page_result(page: Page, link: str) -> JsonObject:
    """The result of the page tool."""
    return {"content": [text_block(page.text), text_block(_words_on(page, link, has_tool=True))]}


def text_in(part: Part) -> str | None:
    """The text of a part, as a block shows it; None for a part without text."""
    if part.kind == "data":
        return as_json(part.data)
    return part.text


def _words_on(page: Page, link: str, *, has_tool: bool) -> str:
    where = f"bytes {page.first_byte} to {page.end_byte} of {page.whole_bytes}"
    if page.is_last:
        return f"[These are {where}, and the end of the text.]"
    how = (
        f"call {PAGE_TOOL} with first_byte {page.end_byte} and this link: {link}"
        if has_tool
        else f"read the resource {link}"
    )
    return f"[These are {where}: the text goes on. To get more, {how}]"


def _is_within_character(byte: int) -> bool:
    return byte & 0xC0 == 0x80
