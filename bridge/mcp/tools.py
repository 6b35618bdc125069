"""The tools that a server lists, and which of them can be served. Pure.

The listed object of a tool is kept verbatim, except for fields of a wrong type (`tool_fields.py`). A tool that cannot
be served (no name, no input schema) is left out and reported; the others stay. A tool with an invalid schema (`"type":
"any"`, the `exclusiveMinimum: true` of draft 4), or a schema with references that lead out of the schema, is served;
its arguments are checked against the valid rest of the schema. A tool whose schema names an unknown dialect is served,
too; the schema is read as 2020-12.

Spec: MCP 2026-07-28 and 2025-11-25, server/tools.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge.errors import echoed
from bridge.mcp.schemas import (
    MAX_SCHEMA_DEPTH,
    checkable,
    schema_cost,
    unknown_dialect,
)
from bridge.mcp.tool_fields import with_typed_fields
from bridge.text.jsonvalues import JsonObject, exceeds_floats, is_deeper

StandInKind = Literal["prompts", "resources"]

MESSAGE_META: Final = "mcp-a2a/message"
"""The `_meta` key of a block that comes from the message of a prompt: the other fields of the message."""


@dataclass(frozen=True, slots=True)
class CallOfStandIn:
    """One call of a tool that stands for a prompt or resources."""

    arguments: JsonObject
    rounds: JsonObject
    """The `inputResponses` and the `requestState` of a later round; empty in the first."""
    may_read: Callable[[str], bool]
    """Whether the caller may read the resource with this URI."""
    ask: Callable[[str, JsonObject], Awaitable[JsonObject]]
    """Sends a request with a method and params, and returns the result as the server sent it."""


class StandIn(Protocol):
    """What a tool of the bridge stands for, in place of a tool of its server."""

    @property
    def kind(self) -> StandInKind:
        """Whether it is a prompt, or resources."""
        ...

    @property
    def entry(self) -> JsonObject:
        """The prompt or template as its server lists it; empty if the tool stands for no single entry."""
        ...

    @property
    def method(self) -> str:
        """The request that a call begins with."""
        ...

    async def result(self, call: CallOfStandIn) -> JsonObject:
        """The answer to a call, as the result of a tool.

        Raises:
            PeerError: the server gave no answer, or refused the request.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One tool: its name, the object that the server listed, and the schema of its arguments."""

    name: str
    listed: JsonObject
    input_schema: JsonObject
    """The listed schema without its invalid keywords."""
    validator: Validator
    unchecked: str | None = None
    """Why the arguments are not checked against the whole listed schema; None if they are."""
    header_names: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """The arguments that a header repeats, by their paths: the `x-mcp-header` of each (MCP 2026-07-28)."""
    odd: tuple[str, ...] = ()
    """Descriptions of the listed fields that were left out."""
    stands_for: StandIn | None = None
    """What the tool stands for; None for a tool of the server."""

    def text(self, key: str) -> str | None:
        """A text field of the tool, such as `title` or `description`; None if it is absent or empty."""
        value = self.listed.get(key)
        return value if isinstance(value, str) and value else None

    @property
    def output_schema(self) -> JsonObject | None:
        """The schema of its structured result, if it has one."""
        value = self.listed.get("outputSchema")
        return value if isinstance(value, dict) else None

    @property
    def annotations(self) -> JsonObject:
        """The annotations of the tool, which are hints; empty if there are none."""
        value = self.listed.get("annotations")
        return value if isinstance(value, dict) else {}

    @property
    def runs_only_as_task(self) -> bool:
        """Whether the tool has to be called as a task (MCP 2025-11-25 basic/utilities/tasks, tool-level
        negotiation)."""
        execution = self.listed.get("execution")
        return isinstance(execution, dict) and execution.get("taskSupport") == "required"

    @property
    def is_repeatable(self) -> bool:
        """Whether its annotations say that calling the tool twice has no more effect than calling it once."""
        return any(self.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))


@dataclass(frozen=True, slots=True)
class UnservableTool:
    """A listed tool that cannot be served."""

    name: str
    reason: str


DEFAULT_SCHEMA_VALUES: Final = 250_000
"""The most values in the schemas of a list of tools. Compiling this many takes one or two seconds."""


@dataclass(slots=True)
class SchemaBudget:
    """The work that is left for compiling the schemas of one peer, in values."""

    most: int = DEFAULT_SCHEMA_VALUES
    _done: int = 0

    def takes(self, schema: JsonObject) -> bool:
        """Count a schema if the budget allows it. After a schema that is too large, smaller ones may still fit."""
        more = schema_cost(schema)
        if self._done + more > self.most:
            return False
        self._done += more
        return True


def tools_from(
    listed: Iterable[JsonValue], work: SchemaBudget | None = None
) -> tuple[tuple[Tool, ...], tuple[UnservableTool, ...]]:
    """The tools that can be served, in the server's order, and the tools that cannot.

    The arguments of a tool are not checked if its schema costs more work than is left.
    """
    work = work or SchemaBudget()
    tools: dict[str, Tool] = {}
    left_out: list[UnservableTool] = []
    for number, item in enumerate(listed, 1):
        name = _name_of(item) or f"number {number}"
        try:
            tool = _tool_from(item, work)
            if tool.name in tools:
                raise ValueError("an earlier tool has this name")
        except ValueError as exc:
            left_out.append(UnservableTool(name, str(exc)))
        else:
            tools[tool.name] = tool
    return tuple(tools.values()), tuple(left_out)


def _name_of(item: JsonValue) -> str | None:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) and name else None


def _tool_from(item: JsonValue, work: SchemaBudget) -> Tool:
    if not isinstance(item, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - one kind of error for one kind of reader
    name = _name_of(item)
    if name is None:
        raise ValueError("it has no name")
    schema = item.get("inputSchema")
    if not isinstance(schema, dict):
        raise ValueError("its inputSchema is no object")  # noqa: TRY004
    if schema.get("type", "object") != "object":
        raise ValueError(f"its inputSchema has the type {schema['type']!r}, not 'object'")
    # Imports the whole SDK, which an A2A client never needs.
    from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

    if (reason := find_invalid_x_mcp_header(schema)) is not None:
        raise ValueError(f"its inputSchema has an invalid x-mcp-header: {reason}")
    unchecked = None
    if not work.takes(schema):
        unchecked = (
            f"the schemas of all tools hold more than {work.most} values: `schema_values` is the limit"
        )
        schema = {}
    validator, schema, fault = checkable(schema)
    unchecked = fault or unchecked
    if dialect := unknown_dialect(schema):
        unchecked = f"its schema has an unknown dialect and is read as 2020-12: {echoed(dialect)}"
    if is_deeper(item, MAX_SCHEMA_DEPTH + 1):
        raise ValueError(f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if exceeds_floats(item):
        raise ValueError("a number in it is out of range")
    listed, odd = with_typed_fields(item)
    return Tool(name, listed, schema, validator, unchecked, x_mcp_header_map(schema), odd)
