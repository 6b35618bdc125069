"""Lists the prompts and templates of a server, and makes a tool of each.

They are listed with the tools, and again whenever the server announces that it has others. A list that fails, takes too
long or is too large never hides the tools: the listing says why the rest is missing.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import anyio
from pydantic import JsonValue

from bridge.errors import PeerError
from bridge.mcp.client.as_tools.entries import Ask, ListBounds, ReadEntries, entries_of
from bridge.mcp.client.as_tools.prompts import PREFIX, PromptStandIn, listed_prompt
from bridge.mcp.client.as_tools.resources import (
    TEMPLATE_PREFIX,
    SearchStandIn,
    TemplateStandIn,
    listed_search,
    listed_template,
)
from bridge.mcp.client.as_tools.uri_templates import template_from
from bridge.mcp.client.values import ToolListing
from bridge.mcp.tools import SchemaBudget, StandIn, StandInKind, Tool, UnservableTool, tools_from
from bridge.settings import ServerSettings
from bridge.text.jsonvalues import JsonObject

_LIST_SECONDS: Final = 5.0
"""How long a server may take for each of its lists. The tools wait for them when it connects."""
_NAME_CHARACTERS: Final = 200
"""The longest name of a prompt or a template that becomes a skill. No name that a person chose is as long."""
_UNSAYABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DIGEST_CHARACTERS: Final = 8
_KINDS_AT: Final[Mapping[str, tuple[str, str]]] = {
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/templates/list", "resourceTemplates"),
}
"""The request for each list, and the field that holds its entries."""

Made = tuple[JsonObject, StandIn]
"""A tool as tools/list would show it, and what the tool stands for."""


async def with_stand_ins(
    listing: ToolListing, kinds: Iterable[StandInKind], ask: Ask, settings: ServerSettings
) -> ToolListing:
    """A listing with the tools that stand for what a server has of these kinds."""
    entries: dict[StandInKind, tuple[JsonObject, ...]] = {}
    odd = [listing.odd] if listing.odd else []
    for kind in sorted(kinds):
        read = await _read(kind, ask, settings)
        entries[kind] = read.entries
        if read.odd:
            odd.append(f"its list of {_words_of(kind)} is not whole: {read.odd}")
    return replace(stand_ins_from(listing, entries, settings.schema_values), odd="; ".join(odd))


def stand_ins_from(
    listing: ToolListing, entries: Mapping[StandInKind, Iterable[JsonValue]], schema_values: int
) -> ToolListing:
    """A listing with the tools for these entries. An entry whose tool has the name of a tool is left out."""
    left_out: list[UnservableTool] = []
    made: list[Made] = []
    for kind, listed in entries.items():
        made += _MAKERS[kind](listed, left_out)
    taken = {tool.name for tool in listing.tools}
    stands_for: dict[str, StandIn] = {}
    stand_ins: list[JsonValue] = []
    for tool, stand_in in made:
        name = str(tool["name"])
        if name in taken:
            left_out.append(UnservableTool(name, "a tool or an earlier entry has this name"))
            continue
        taken.add(name)
        stands_for[name] = stand_in
        stand_ins.append(tool)
    tools, unservable = tools_from(stand_ins, SchemaBudget(schema_values))
    return replace(
        listing,
        left_out=(*listing.left_out, *left_out, *unservable),
        stand_ins=tuple(replace(tool, stands_for=stands_for[tool.name]) for tool in tools),
    )


def kept_entries(stand_ins: Iterable[Tool]) -> dict[StandInKind, list[JsonObject]]:
    """The entries that these tools were made from, from which `stand_ins_from` makes them again."""
    entries: dict[StandInKind, list[JsonObject]] = {}
    for tool in stand_ins:
        assert tool.stands_for is not None
        of_kind = entries.setdefault(tool.stands_for.kind, [])
        if tool.stands_for.entry:
            of_kind.append(tool.stands_for.entry)
    return entries


async def _read(kind: StandInKind, ask: Ask, settings: ServerSettings) -> ReadEntries:
    """The entries of one list; none if the server cannot give it."""
    method, key = _KINDS_AT[kind]
    bounds = ListBounds(settings.tools_most, settings.tools_limit_bytes)
    try:
        with anyio.move_on_after(_LIST_SECONDS):
            return await entries_of(ask, method, key, bounds)
    except PeerError as exc:
        return ReadEntries((), str(exc))
    return ReadEntries((), f"it did not come in {_LIST_SECONDS:g} s")


def _words_of(kind: StandInKind) -> str:
    return "prompts" if kind == "prompts" else "resource templates"


def _prompts(entries: Iterable[JsonValue], left_out: list[UnservableTool]) -> Iterator[Made]:
    for entry in entries:
        if (name := _name_in(entry, PREFIX, left_out)) is None or not isinstance(entry, dict):
            continue
        try:
            yield listed_prompt(entry), PromptStandIn(entry)
        except ValueError as exc:
            left_out.append(UnservableTool(f"{PREFIX}{name}", str(exc)))


def _resources(entries: Iterable[JsonValue], left_out: list[UnservableTool]) -> Iterator[Made]:
    listed = [entry for entry in entries if isinstance(entry, dict)]
    names = Counter(entry.get("name") for entry in listed if isinstance(entry.get("name"), str))
    yield listed_search(), SearchStandIn()
    for entry in listed:
        if (name := _name_in(entry, TEMPLATE_PREFIX, left_out)) is None:
            continue
        text = entry.get("uriTemplate")
        full = f"{TEMPLATE_PREFIX}{name}"
        if names[name] > 1:  # the URI template tells them apart, whatever their order
            digest = hashlib.sha256(str(text).encode(errors="surrogatepass")).hexdigest()
            full = f"{full}:{digest[:_DIGEST_CHARACTERS]}"
        try:
            if not isinstance(text, str):
                raise ValueError("it has no uriTemplate")  # noqa: TRY004 - one kind of error for one kind of reader
            template = template_from(text)
        except ValueError as exc:
            left_out.append(UnservableTool(full, str(exc)))
        else:
            yield listed_template(entry, full, template), TemplateStandIn(entry, template)


def _name_in(entry: JsonValue, prefix: str, left_out: list[UnservableTool]) -> str | None:
    """The name of an entry; None if no skill can have the name."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        left_out.append(UnservableTool(f"{prefix}?", "it has no name"))
        return None
    if len(name) > _NAME_CHARACTERS:
        short_name = f"{prefix}{name[:40]}…"
        left_out.append(UnservableTool(short_name, f"its name has more than {_NAME_CHARACTERS} characters"))
        return None
    if _UNSAYABLE.search(name):
        left_out.append(UnservableTool(f"{prefix}{name!r}", "its name has control characters"))
        return None
    return name


_MAKERS: Final[
    Mapping[StandInKind, Callable[[Iterable[JsonValue], list[UnservableTool]], Iterator[Made]]]
] = {
    "prompts": _prompts,
    "resources": _resources,
}
