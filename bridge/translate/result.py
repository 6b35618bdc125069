"""What an agent gave, as the result of a tool call. Pure.

A failed, rejected or canceled task is never a success, and says which it was. With the extension active a result
is exactly what the server behind the agent gave; the state of its task then stands in `_meta`.

Spec: A2A 1.0 sections 4.1.1 and 4.1.3; MCP server/tools (results, isError, structuredContent).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import Artifact, Message, Part, Role, Task, TaskState, text_of_parts
from bridge.jsonvalues import JsonObject
from bridge.mcp.schemas import UncheckableError, errors_of
from bridge.translate.arguments import json_in, properties_of
from bridge.translate.blocks import (
    PART_META,
    ResultRules,
    as_json,
    blocks_from_parts,
    structured_in,
    text_block,
)
from bridge.translate.content import STRUCTURED, WRAPPED, repeats
from bridge.translate.extension import PEER, REMARKS, SKILL

STATE_META: Final = "mcp-a2a/state"
"""`_meta` of a result: the state in which a task that gave no success ended."""
STATUS_META: Final = "mcp-a2a/status"
"""`_meta` of a result: what the agent said when it was done, beside its artifacts."""
ARTIFACT_META: Final = "mcp-a2a/artifact"
"""`_meta` of the first block of an artifact: what the artifact says beyond its parts."""

UNFINISHED_META: Final = "mcp-a2a/unfinished"
"""`_meta` of a result that is none yet, and no failure: {"state", "tool"?, "handle"?}; the tool goes on with it."""

_ENDS: Final[Mapping[TaskState, str]] = {
    TaskState.FAILED: "The agent's task failed",
    TaskState.REJECTED: "The agent rejected the task",
    TaskState.CANCELED: "The agent's task was canceled",
}
"""How a task ended without success, in words."""
_NO_FAILURE: Final = "This is no failure, the call has just not come to its result yet."
_OWN_FIELDS: Final = frozenset({"content", STRUCTURED, "isError", "resultType"})
_RESERVED_META: Final = "io.modelcontextprotocol/"
"""Keys of the protocol's own, which are about the server's connection and not about ours."""
_MAX_FAULTS: Final = 5
_MAX_FAULT_CHARACTERS: Final = 300


def result_from_task(task: Task, reading: ResultRules) -> JsonObject:
    """The result of a task that has ended.

    Raises:
        ValueError: it has not.
    """
    state = task.status.state
    if state not in ENDED:
        raise ValueError(f"a task in {state} has no result")
    remarks = _remarks_on(task) if reading.extension_active else ()
    if remarks:
        task = _without_words(task, remarks)
    result = _completed(task, reading) if state is TaskState.COMPLETED else _unsuccessful(task, reading)
    if not remarks:
        return result
    return {**result, "_meta": {**_meta_of(result), STATUS_META: "\n".join(remarks)}}


def _remarks_on(task: Task) -> tuple[str, ...]:
    """What an agent of ours says beside its server's own words."""
    message = task.status.message
    metadata = (message.metadata if message else None) or {}
    return tuple(words for key in REMARKS if isinstance(words := metadata.get(key), str))


def _without_words(task: Task, words: Sequence[str]) -> Task:
    """The task as its server left it."""
    message = task.status.message
    assert message is not None
    parts = tuple(part for part in message.parts if part.text not in words)
    left = message.model_copy(update={"parts": parts}) if parts else None
    return task.model_copy(update={"status": task.status.model_copy(update={"message": left})})


def result_from_message(message: Message, reading: ResultRules) -> JsonObject:
    """The result that an agent gave at once, without a task. It is inlined: nobody could fetch it later."""
    inlined = replace(reading, inline_limit_bytes=None)
    own = _peer_fields(message.metadata) if reading.extension_active else {}
    return _checked(blocks_from_parts(message.parts, inlined), message.parts, own, inlined)


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A call that has not come to its result: its agent asks, or is at work."""

    words: str
    """What it asks, or that it is at work."""
    state: TaskState
    tool: str
    """The follow-up tool by which it goes on."""
    handle: str | None
    """None when no follow-up tools are offered."""
    purpose: str
    """What the tool is called for: "to answer"."""
    or_else: str = ""
    """Another way to go on, in words behind the tool's name."""

    @property
    def meta(self) -> JsonObject:
        """The same for who reads no words."""
        how: JsonObject = {} if self.handle is None else {"tool": self.tool, "handle": self.handle}
        return {UNFINISHED_META: {"state": self.state.value, **how}}


def unfinished_result(call: UnfinishedCall, *, output: Validator | None) -> JsonObject:
    """A question or "still at work" as a result in words.

    A tool with an output schema may say in words only that it failed. Many hosts show little of a failure, so the
    words then begin with what to do, and say that it is none.
    """
    nowhere = f"this server offers no {call.tool}, so it cannot be followed from here"
    how = (
        nowhere if call.handle is None else f"call {call.tool}{call.or_else} with this handle: {call.handle}"
    )
    if output is None:
        lead = "" if call.handle is None else f"{call.purpose}, "
        words = f"{call.words}\n\n{_sentence(lead + how)}"
        return {"content": [text_block(words)], "_meta": call.meta}
    if call.handle is not None:
        how = f"call {call.tool}{call.or_else} with handle {call.handle} {call.purpose}"
    words = f"Not finished: {how}. {_NO_FAILURE}\n\n{call.words}"
    return {"content": [text_block(words)], "isError": True, "_meta": call.meta}


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def server_error_in(task: Task) -> JsonObject | None:
    """The JSON-RPC error (code, message, data) with which the server behind an agent of ours answered, if it did."""
    message = task.status.message
    metadata = (message.metadata if message else None) or {}
    peer = metadata.get(PEER)
    error = peer.get("error") if isinstance(peer, dict) and SKILL not in metadata else None
    return error if isinstance(error, dict) else None


def _completed(task: Task, reading: ResultRules) -> JsonObject:
    artifacts, said = task.artifacts or (), task.status.message
    if not artifacts:
        parts = said.parts if said else () if reading.extension_active else _last_words(task)
        own = _peer_fields(said.metadata if said else None) if reading.extension_active else {}
        return _checked(blocks_from_parts(parts, _inline(reading)), parts, own, reading)
    parts = tuple(part for artifact in artifacts for part in artifact.parts)
    content = [block for artifact in artifacts for block in _blocks_of(artifact, reading)]
    if reading.extension_active:
        return _checked(content, parts, _peer_fields(artifacts[0].metadata), reading)
    words = text_of_parts(said.parts) if said else ""
    return _checked(content, parts, {"_meta": {STATUS_META: words}} if words else {}, reading)


def _unsuccessful(task: Task, reading: ResultRules) -> JsonObject:
    state, said = task.status.state, task.status.message
    parts = said.parts if said else ()
    words = blocks_from_parts(parts, _inline(reading))
    partial = [block for artifact in task.artifacts or () for block in _blocks_of(artifact, reading)]
    if not reading.extension_active:
        content = [*words, text_block(f"[{_ENDS[state]}{'' if words else ', and it gave no words for it'}]")]
        return {"content": [*content, *partial], "isError": True, "_meta": {STATE_META: state.value}}
    own = _peer_fields(said.metadata if said else None)
    meta = own.pop("_meta", None)
    result: JsonObject = {"content": [*words, *partial]}
    if structured := structured_in(parts):
        result[STRUCTURED] = structured[0]
    result["isError"] = True
    result |= own
    result["_meta"] = {**(meta if isinstance(meta, dict) else {}), STATE_META: state.value}
    return result


def _checked(
    content: list[JsonValue], parts: Sequence[Part], own: JsonObject, reading: ResultRules
) -> JsonObject:
    """A successful result, with structured content where the tool promises it; else what did not conform."""
    marked = structured_in(parts) if reading.extension_active else ()
    if reading.output is None:
        return {"content": content} | ({STRUCTURED: marked[0]} if marked else {}) | own
    # Where nothing is marked the last comes first: agents put their data at the end.
    data = marked or tuple(part.data for part in reversed(parts) if part.kind == "data")
    for value in data or _said_in_words(parts, reading.output):
        if not _faults_of(value, reading.output):
            said = content if marked else _said_once(content, value)
            return {"content": said, STRUCTURED: value} | own
    why = "; ".join(_faults_of(data[0], reading.output)) if data else "it holds no data"
    words = f"The agent's result is not as the tool's output schema asks: {why}. What it gave:"
    failed: list[JsonValue] = [text_block(words), *content]
    failed += [
        text_block(as_json(value)) for value in marked if not any(repeats(one, value) for one in content)
    ]
    result: JsonObject = {"content": failed, "isError": True}
    return result | own


def _said_in_words(parts: Sequence[Part], output: Validator) -> tuple[JsonValue, ...]:
    """What texts say where there is no data: an agent of ours sends them alone when it was not told of the extension,
    as a proxy may take that header away."""
    texts = [part.text for part in parts if part.text is not None]
    plain = [value for text in texts for value in json_in(text)]
    wraps = isinstance(output.schema, dict) and tuple(properties_of(output.schema)) == (WRAPPED,)
    return (*plain, *({WRAPPED: value} for value in (*texts, *plain) if wraps))


def _said_once(content: list[JsonValue], value: JsonValue) -> list[JsonValue]:
    """Content in which structured content stands once: our text of it goes where the agent has its own."""
    twins = [block for block in content if repeats(block, value)]
    ours = [block for block in twins if isinstance(block, dict) and PART_META in _meta_of(block)]
    return content if len(ours) == len(twins) else [block for block in content if block not in ours]


def _meta_of(block: JsonObject) -> JsonObject:
    meta = block.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _faults_of(value: JsonValue, schema: Validator) -> tuple[str, ...]:
    """What a schema finds wrong with a value; nothing when that cannot be told here."""
    try:
        errors = errors_of(schema, value, _MAX_FAULTS)
    except UncheckableError:
        return ()
    places = ("/".join(str(step) for step in error.absolute_path) for error in errors)
    return tuple(
        f"{f'at {place}: ' if place else ''}{error.message[:_MAX_FAULT_CHARACTERS]}"
        for place, error in zip(places, errors, strict=True)
    )


def _blocks_of(artifact: Artifact, reading: ResultRules) -> list[JsonValue]:
    blocks = blocks_from_parts(artifact.parts, reading)
    if reading.extension_active or not isinstance(blocks[0], dict):
        return blocks
    said = artifact.to_object()
    about = {key: value for key, value in said.items() if key not in ("parts", "extensions")}
    first: JsonObject = {**blocks[0], "_meta": {**_meta_of(blocks[0]), ARTIFACT_META: about}}
    return [first, *blocks[1:]]


def _inline(reading: ResultRules) -> ResultRules:
    """Messages are no artifacts: no part of them is served."""
    return replace(reading, inline_limit_bytes=None)


def _last_words(task: Task) -> tuple[Part, ...]:
    """What the agent said since it was spoken to, on its way and at its end; else what it said last of all."""
    history = task.history or ()
    since = [*takewhile(lambda message: message.role is Role.AGENT, reversed(history))]
    last = since or [message for message in reversed(history) if message.role is Role.AGENT][:1]
    return tuple(part for message in reversed(last) for part in message.parts)


def _peer_fields(metadata: JsonObject | None) -> JsonObject:
    """What the server said beside its content, as our agents pass it on."""
    peer = (metadata or {}).get(PEER)
    if not isinstance(peer, dict) or SKILL not in (metadata or {}):
        return {}
    own = {key: value for key, value in peer.items() if key not in _OWN_FIELDS}
    meta = own.pop("_meta", None)
    if isinstance(meta, str):
        meta = _parsed(meta)
    if isinstance(meta, dict):
        own["_meta"] = {key: value for key, value in meta.items() if not key.startswith(_RESERVED_META)}
    return own


def _parsed(text: str) -> JsonValue:
    """What was too deep to be data, and was spelled out."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
