"""What a tool server says of its tools: schemas, through all that reads them and checks by them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final

import anyio

from bridge.a2a.model.objects import Message, Part, Role
from bridge.concurrency import done_at_once
from bridge.errors import PeerError
from bridge.mcp.tools import tools_from
from bridge.translate.agent_questions import elicitation_form_from
from bridge.translate.arguments import (
    coerced,
    coerced_fields,
    describe,
    form_for,
    problems_of,
    whole_numbers,
)
from bridge.translate.elicitation import (
    elicitation_from,
)
from bridge.translate.examples import example_of
from bridge.translate.message_to_call import RouteRules, call_from_message
from bridge.translate.skills import skill_from
from tests.hostile.a2a_answers import strict_json
from tests.hostile.json_grammar import TEXTS, as_plain, nested, value, whole
from tests.hostile.mutations import mutated
from tests.hostile.scripted_server import TOOLS
from tests.hostile.target import Check, Target

_KEYWORDS: Final[dict[str, tuple[Any, ...]]] = {
    "$ref": (
        "#",
        "#/$defs/a",
        "#/minLength/x",
        "#a",
        "http://127.0.0.1:@PORT@/s.json",
        "file:///etc/hosts",
        "//x",
        "",
    ),
    "$dynamicRef": ("#", "#a", "#/$defs/a", "http://127.0.0.1:@PORT@/s.json"),
    "$recursiveRef": ("#",),
    "$id": ("http://127.0.0.1:@PORT@/", "urn:x", "#", "http://[", ""),
    "$schema": (
        "http://json-schema.org/draft-03/schema#",
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
        "http://127.0.0.1:@PORT@/schema",
    ),
    "$anchor": ("a", "b"),
    "$dynamicAnchor": ("a", "b"),
    "$vocabulary": ({"http://127.0.0.1:@PORT@/v": True},),
    "pattern": ("^(a+)+$", "(?=a)", "[", "^(\\w+\\s?)*$", "(a{1000}){1000}", "\\p{L}", "(?<n>a)\\k<n>"),
    "multipleOf": (0.1, 1e-308, 3, 1e308, 2**70),
    "minimum": (0, -1e308, 2**80),
    "maxLength": (0, 5, 2**70),
    "minLength": (1, 3.0),
    "uniqueItems": (True,),
    "enum": ([1, "a", None, [1], {"a": 1}], [], [0.0, -0.0, False]),
    "const": (1, None, [nested(5)]),
    "format": ("uri", "email", "regex", "date-time", "x" * 50),
    "required": (["a"], ["a", "b"], []),
    "type": ("object", "string", ["string", "null"], "integer", "array", "number"),
    "default": (1, "a", None, nested(30)),
    "title": ("A", "\u202e"),
    "x-mcp-header": ("A", "a b", 1),
    "contentEncoding": ("base64",),
    "dependencies": ({"a": ["b"]},),
    "deprecated": (True,),
    "examples": ([1],),
}
_SUB: Final = (
    "not",
    "if",
    "then",
    "else",
    "items",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "extends",
)
_SUBS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("properties", "$defs", "patternProperties", "dependentSchemas", "definitions")


def schema(chance: Random, levels: int = 3) -> Any:
    """A schema, mostly a valid one."""
    if chance.random() < 0.08:
        return chance.choice([True, False])
    made: Any = {}
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(10)
        if kind < 5 or levels == 0:
            word = chance.choice(list(_KEYWORDS))
            made[word] = chance.choice(_KEYWORDS[word])
        elif kind == 5:
            made[chance.choice(_SUB)] = schema(chance, levels - 1)
        elif kind == 6:
            made[chance.choice(_SUBS)] = [schema(chance, levels - 1) for _ in range(chance.randint(1, 2))]
        else:
            names = chance.sample(["a", "b", "^(a+)+$", "x", "$ref", ""], chance.randint(1, 2))
            made[chance.choice(_NAMED)] = {name: schema(chance, levels - 1) for name in names}
    return made


def instance_of(chance: Random) -> Any:
    """Arguments that meet the names of `schema`."""
    if chance.random() < 0.3:
        made = as_plain(value(chance))
        return made if isinstance(made, dict) else {"a": made}
    names = chance.sample(["a", "b", "x", "", "a" * 28 + "!", "$ref"], chance.randint(0, 3))
    kinds = (1, 1.0, 10**300, "a" * 28 + "!", "b", None, True, [1, 1.0, True], {"a": {"b": 1}}, [], {})
    return {name: chance.choice(kinds) for name in names}


def schema_case(chance: Random) -> tuple[Any, Any, str]:
    """A tool as it is listed, arguments for it, and a text that may hold some."""
    root = {"type": "object", **made} if isinstance(made := schema(chance), dict) else made
    if chance.random() < 0.05:
        root = {"type": "object", chance.choice(_SUB): _deep(chance)}
    tool = {"name": "t", "inputSchema": root, "outputSchema": schema(chance)}
    if chance.random() < 0.2:
        tool = as_plain(mutated(chance.choice([tool, *TOOLS]), chance))
    return tool, instance_of(chance), chance.choice([*TEXTS, "a=1 b=x", '{"a": "1"}'])


def _deep(chance: Random) -> Any:
    made: Any = {}
    for _ in range(chance.choice([10, 60, 61, 62, 63, 64, 90])):
        word = chance.choice([*_SUB, *_SUBS])
        made = {word: [made] if word in _SUBS else made}
    return made


@asynccontextmanager
async def schema_scene() -> AsyncIterator[Check]:
    """Somebody listens where the schemas refer to, and counts who connects; nobody may."""
    connections = 0

    def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    port = str(server.sockets[0].getsockname()[1])

    async def check(case: tuple[Any, Any, str]) -> None:
        listed, arguments, said = case
        check_tool(json.loads(json.dumps(listed).replace("@PORT@", port)), arguments, said)
        await anyio.sleep(0)
        assert connections == 0, "a schema was fetched"

    try:
        yield check
        await anyio.sleep(0.05)
        assert connections == 0, "a schema was fetched"
    finally:
        server.close()


def check_tool(listed: Any, arguments: Any, said: str) -> None:
    """A tool is served or left out; whatever is asked of one that is served has an answer, at once or by a worker."""
    done_at_once(partial(_check_tool, listed, arguments, said))


def _check_tool(listed: Any, arguments: Any, said: str) -> None:
    tools, left_out = tools_from([listed])
    assert len(tools) + len(left_out) == 1
    for tool in tools:
        problems = problems_of(tool, arguments)
        form = form_for(tool, problems)
        assert all(isinstance(describe(tool, problem), str) for problem in problems)
        elicitation_or_none({"message": "?", "requestedSchema": form})
        coerced_fields(dict(arguments), tool)
        for name in ("a", "b", *list(arguments)[:3]):
            coerced(whole(said)[:2000], name, tool)
        example = example_of(tool)
        assert example is None or not problems_of(tool, example)
        skill = skill_from(tool, tool.name, "server")
        strict_json(skill.to_json())
        user = Message(message_id="1", role=Role.USER, parts=(Part(text=whole(said) or "x"),))
        call_from_message(user, {}, {tool.name: tool}, RouteRules(("skill",)))
        elicitation_form_from(tool.input_schema)
    whole_numbers(arguments)


def elicitation_or_none(params: Any) -> Any:
    """A question that can be passed on, if it can."""
    try:
        return elicitation_from("key", params)
    except PeerError:
        return None


TARGETS: Final = (Target("schemas", schema_case, schema_scene, share=110, examples=400),)
