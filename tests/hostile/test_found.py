"""What hostile input has found, each by its name."""

from __future__ import annotations

import base64
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import httpx2
import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from jsonschema import Draft202012Validator
from referencing import Registry

from bridge.a2a.client.agent_card import CardSource, FoundCard
from bridge.a2a.client.agent_client import AgentClient
from bridge.a2a.client.bindings import binding_of
from bridge.a2a.client.http import url_from
from bridge.a2a.model import operations
from bridge.a2a.model.errors import PARSE_ERROR, A2AError
from bridge.a2a.model.objects import AgentCard, AgentInterface, Artifact, Task, TaskState, TaskStatus
from bridge.a2a.wire.jsontext import parse_json
from bridge.a2a.wire.v1_0 import V1_0
from bridge.concurrency import done_at_once
from bridge.errors import PeerError
from bridge.http.client import GuardedClient
from bridge.http.request_checks import RefusedError, request_body
from bridge.mcp.schemas import MAX_SCHEMA_DEPTH, UncheckableError, errors_of, validator_of
from bridge.mcp.tools import Tool, tools_from
from bridge.seal import Handle, HandleBinding, HandlePurpose, Seal, agent_mark
from bridge.text.jsonvalues import DEFAULT_MAX_VALUES
from bridge.translate.arguments import coerced, problems_of
from bridge.translate.blocks import ResultRules
from bridge.translate.content import LinkRules, parts_from_result
from bridge.translate.elicitation import elicitation_from
from bridge.translate.extensions.bridge import declaration
from bridge.translate.outcome import error_metadata
from bridge.translate.result import result_from_task
from bridge.translate.skill_tools import ToolSource, tools_of_agents
from tests.hostile.a2a_faces import TARGETS as FACE_TARGETS
from tests.hostile.agent_cards import card_of
from tests.hostile.asgi import Asked, header
from tests.hostile.json_grammar import nested
from tests.hostile.raw_peer import Reply, raw_peer
from tests.hostile.servers import TARGETS as SERVER_TARGETS
from tests.hostile.target import watched
from tests.support.limits import card_bounds, client_options, tool_rules

BEYOND_FLOATS = 10**400


def tool_of(schema: Any) -> Tool:
    tools, left_out = tools_from([{"name": "t", "inputSchema": {"type": "object", **schema}}])
    assert not left_out, left_out
    return tools[0]


def reason_of(schema: Any) -> str:
    tools, left_out = tools_from([{"name": "t", "inputSchema": {"type": "object", **schema}}])
    assert not tools
    return left_out[0].reason


async def test_a_declared_length_of_five_thousand_digits_is_too_large() -> None:
    async def receive() -> Any:
        raise AssertionError("nothing is read")

    with pytest.raises(RefusedError) as refused:
        await request_body(receive, {"content-length": "9" * 5000}, 1000)
    assert refused.value.status == 413


@pytest.mark.parametrize("text", [b"1" + b"0" * 400, b'{"a": [-1' + b"0" * 400 + b"]}"])
def test_a_whole_number_beyond_floats_is_out_of_range_as_any_other_is(text: bytes) -> None:
    with pytest.raises(A2AError, match="out of range") as refused:
        parse_json(text)
    assert refused.value.kind is PARSE_ERROR


def test_many_items_at_fault_take_no_more_memory_than_they_are_long() -> None:
    params = parse_json(
        b'{"message":{"messageId":"a","role":"ROLE_USER","parts":[' + b"0," * 200_000 + b"0]}}"
    )
    tracemalloc.start()
    try:
        with pytest.raises(A2AError) as refused:
            V1_0().request_from(operations.SEND_MESSAGE, params)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [one.field for one in refused.value.violations] == ["message.parts.0"]
    assert peak_bytes < 1_000_000


@pytest.mark.parametrize(
    "schema",
    [
        {"minProperties": 0, "$ref": "#/minProperties/x"},
        {"properties": {"a": True}, "$ref": "#/properties/a/b"},
        {"default": None, "$ref": "#/default/b"},
    ],
)
def test_a_reference_into_what_holds_nothing_leaves_the_arguments_unchecked(schema: Any) -> None:
    assert "which is not in the schema" in (tool_of(schema).unchecked or "")


def test_a_reference_to_what_only_looks_like_a_schema_leaves_the_arguments_unchecked() -> None:
    tool = tool_of({"default": {"allOf": True}, "$ref": "#/default"})
    assert "not a schema" in (tool.unchecked or "")


@pytest.mark.parametrize("draft", ["03", "04"])
def test_schemas_of_old_dialects_may_hold_what_is_no_schema(draft: str) -> None:
    old = {"$schema": f"http://json-schema.org/draft-{draft}/schema#", "definitions": {"a": {}}}
    assert tool_of({**old, "dependencies": {"a": ["b"]}, "additionalProperties": False})


def test_patterns_of_unevaluated_properties_are_not_tried_in_exponentially_many_ways() -> None:
    tool = tool_of({"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False})
    assert problems_of(tool, {"a" * 60 + "!": 1}) == ()


def test_a_schema_that_names_its_dialect_is_checked_as_quickly_as_any() -> None:
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    tool = tool_of({**dialect, "oneOf": [{**dialect, "patternProperties": {"^(a+)+$": False}}]})
    assert problems_of(tool, {"a" * 60 + "!": 1}) == ()


def test_references_that_fan_out_are_not_followed_for_ever() -> None:
    fan = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    schema = {"type": "object", "$defs": {**fan, "a60": {}}, "$ref": "#/$defs/a0"}
    with pytest.raises(UncheckableError, match=r"too many steps|too long"):
        done_at_once(lambda: errors_of(validator_of(schema), {}, 1))
    assert done_at_once(lambda: problems_of(tool_of(schema), {})) == ()


def test_a_number_that_no_float_can_divide_is_a_value_that_nothing_is_known_of() -> None:
    tool = tool_of({"properties": {"n": {"type": "number", "multipleOf": 1e-308}}})
    assert coerced("1e300", "n", tool) == 1e300


def test_a_tool_whose_schema_holds_a_number_out_of_range_is_left_out() -> None:
    assert "out of range" in reason_of({"maxProperties": BEYOND_FLOATS})


def test_a_card_with_the_deepest_tool_is_read_by_other_readers() -> None:
    deep: Any = {}
    for _ in range((MAX_SCHEMA_DEPTH - 1) // 2):
        deep = {"properties": {"a": deep}}
    tool = tool_of(deep)
    extension = declaration([("t", tool)]).to_object()
    card = card_of("http://localhost/") | {"capabilities": {"extensions": [extension]}}
    json_format.ParseDict(card, a2a_pb2.AgentCard(), ignore_unknown_fields=True)


@pytest.mark.parametrize("value", [BEYOND_FLOATS, nested(46), nested(60, "dict"), [float("nan"), 1e999]])
def test_a_result_that_other_readers_could_not_take_in_is_spelled_out_and_comes_back(value: Any) -> None:
    result: Any = {"content": [{"type": "odd", "value": value}], "structuredContent": {"n": value}}
    parts = parts_from_result(result, LinkRules(extension_active=True))
    metadata: Any = error_metadata(BEYOND_FLOATS, "no", value)
    task = Task(
        id="1",
        context_id="c",
        status=TaskStatus(state=TaskState.COMPLETED),
        artifacts=(Artifact(artifact_id="a", parts=parts, metadata=metadata),),
    )
    listed = b'{"tasks": [' + task.to_json() + b'], "nextPageToken": "", "pageSize": 1, "totalSize": 1}'
    json_format.Parse(listed, a2a_pb2.ListTasksResponse())
    back = result_from_task(Task.model_validate_json(task.to_json()), ResultRules(extension_active=True))
    json.dumps(back, allow_nan=False)
    if value == value and not isinstance(value, list):
        assert back["structuredContent"] == {"n": value}


@pytest.mark.parametrize("default", [BEYOND_FLOATS, nested(60)])
def test_a_question_that_other_readers_could_not_take_in_is_not_passed_on(default: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": default}}}
    with pytest.raises(PeerError):
        elicitation_from("k", {"message": "?", "requestedSchema": schema})


@pytest.mark.parametrize("port", ["99999", "-1", "65536"])
async def test_an_interface_at_a_port_that_there_is_not_is_no_url(port: str) -> None:
    url = f"http://127.0.0.1:{port}/"
    with pytest.raises(PeerError, match="no port"):
        url_from(url)
    card = {**card_of(url), "securityRequirements": None}
    async with httpx2.AsyncClient() as http:
        with pytest.raises(PeerError, match="no port"):
            AgentClient(
                http, FoundCard("http://127.0.0.1/", b"", AgentCard.model_validate(card)), client_options()
            )


@pytest.mark.outside
@pytest.mark.parametrize("etag", [b'"\xe9\xff"', b'"\x01"'])
async def test_a_validator_that_cannot_be_sent_is_not_given_back(etag: bytes, tmp_path: Path) -> None:
    async with raw_peer() as peer, httpx2.AsyncClient() as http:
        card = json.dumps(card_of(peer.url)).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        peer.answer = lambda *_: Reply((head + b"ETag: " + etag + b"\r\n\r\n", card))
        source = CardSource(http, peer.url, tmp_path, card_bounds())
        try:
            first = await source.refresh()
        except PeerError:
            return  # the HTTP client has refused it
        assert await source.refresh() is first


def test_a_tool_on_a_card_whose_description_is_no_text_is_listed_without_it() -> None:
    card = card_of("http://127.0.0.1:9/", ours=True)
    card["capabilities"]["extensions"][0]["params"]["tools"]["echo"]["description"] = {"no": "text"}
    tools = tools_of_agents([ToolSource("a", AgentCard.model_validate(card))], tool_rules())
    assert {tool.name for tool in tools} == {"echo", "say", "relist", "many", "upload"}
    assert all(isinstance(tool.listed.get("description", ""), str) for tool in tools)


@pytest.mark.parametrize("kind", ["JSONRPC", "HTTP+JSON"])
def test_half_a_character_of_a_host_reaches_the_agent_as_the_replacement_character(kind: str) -> None:
    interface = AgentInterface(url="http://127.0.0.1:9/", protocol_binding=kind, protocol_version="1.0")
    said = {"message": {"parts": [{"text": "half \ud83d."}]}}
    sent = binding_of(interface, V1_0(), DEFAULT_MAX_VALUES).request(operations.SEND_MESSAGE, said)  # type: ignore[arg-type]
    assert sent.content is not None
    assert "half \ufffd." in sent.content.decode()


@pytest.mark.outside
async def test_a_task_whose_server_wants_to_be_asked_at_a_time_beyond_floats_ends() -> None:
    made = {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1}
    looked = {"taskId": "t", "status": "working", "pollIntervalMs": BEYOND_FLOATS}
    lines, then = (_line(one) for one in (made, looked))
    call = {"skill": "say", "arguments": {"lines": lines, "then": [then]}}
    target = next(one for one in SERVER_TARGETS if one.name == "server-says")
    async with watched(target) as check:
        await check((call, False, False))


def _line(result: Any) -> str:
    said = json.dumps({"jsonrpc": "2.0", "id": "@ID@", "result": result}).replace('"@ID@"', "@ID@")
    return base64.b64encode(said.encode()).decode()


@pytest.mark.outside
async def test_a_client_is_gone_also_when_it_has_sent_a_body_that_nobody_reads() -> None:
    headers = (header("host", "localhost"), header("a2a-version", "1.0"))
    asked = Asked("GET", "/tasks/@ASKING@:subscribe", b"", headers, (b"x",) * 5000)
    target = next(one for one in FACE_TARGETS if one.name == "a2a-rest")
    async with watched(target) as check:
        await check(asked)


def test_ids_too_long_for_a_handle_are_a_fault_of_their_agent() -> None:
    handle = Handle(agent_mark("x"), ("c" * 500,), 1)
    with pytest.raises(PeerError, match="too long"):
        Seal([b"k" * 32]).seal(handle, HandleBinding(HandlePurpose.CONTEXT, "alice"))


def test_a_reference_that_leads_nowhere_is_for_the_server_to_judge() -> None:
    validator = Draft202012Validator({"$ref": "http://127.0.0.1:9/schema.json"}, registry=Registry())
    with pytest.raises(UncheckableError):
        errors_of(validator, {}, 5)


def test_references_that_lead_into_one_another_for_ever_are_for_the_server_to_judge() -> None:
    ring = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    with pytest.raises(UncheckableError):
        errors_of(validator_of(ring), {}, 5)


def test_a_value_as_deep_as_values_may_be_is_checked_against_a_schema_of_itself() -> None:
    tree = {"type": "object", "properties": {"n": {"$ref": "#"}}, "additionalProperties": False}
    value: Any = {"n": 1}
    for _ in range(MAX_SCHEMA_DEPTH):
        value = {"n": value}
    assert len(errors_of(validator_of(tree), value, 5)) == 1


@pytest.mark.parametrize(
    "header", [b"Content-Type: text/event-stream; charset=utf-16", b'ETag: "\xe9\xff"', b"X: \xff, Basic"]
)
async def test_what_stands_at_a_wrong_address_is_looked_at_whatever_its_headers_say(
    header: bytes, tmp_path: Path
) -> None:
    async with raw_peer() as peer, GuardedClient() as http:
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + header + b"\r\n\r\n"
        peer.answer = lambda *_: Reply((head, b'{"protocolVersion": "x"}'))
        with pytest.raises(PeerError, match=re.escape(peer.url)):
            await CardSource(http, peer.url, tmp_path, card_bounds(answer_seconds=1)).refresh()
