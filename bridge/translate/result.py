"""Turns an agent's task or message into the result of a tool call. Pure.

A failed, rejected or canceled task is never a success; the result names its state. With the extension active, the
result is exactly the result of the server behind the agent, with the state of the task in `_meta`.

Spec: A2A 1.0 sections 4.1.1 and 4.1.3; MCP server/tools (results, isError, structuredContent).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from jsonschema.protocols import Validator
from pydantic import JsonValue

from bridge.a2a.model.life import ENDED
from bridge.a2a.model.objects import Artifact, Message, Part, Role, Task, TaskState, text_of_parts
from bridge.mcp.schemas import UncheckableError, errors_of
from bridge.text.jsonvalues import JsonObject
from bridge.translate.arguments import json_in, properties_of
from bridge.translate.blocks import (
    ResultRules,
    as_json,
    blocks_from_parts,
    joined,
    pieces_in,
    structured_in,
    text_block,
)
from bridge.translate.content import PART_META, STRUCTURED, WRAPPED, repeats
from bridge.translate.extensions.bridge import PEER, REMARKS, SKILL

STATE_META: Final = "mcp-a2a/state"
"""The `_meta` key of a result for the final state of a task that did not complete."""
STATUS_META: Final = "mcp-a2a/status"
"""The `_meta` key of a result for the agent's final message, beside its artifacts."""
ARTIFACT_META: Final = "mcp-a2a/artifact"
"""The `_meta` key of an artifact's first block for the artifact's fields beyond its parts."""

UNFINISHED_META: Final = "mcp-a2a/unfinished"
"""The `_meta` key of the result of an unfinished call: {"state", "tool"?, "handle"?}. The tool continues the call."""

_ENDS: Final[Mapping[TaskState, str]] = {
    TaskState.FAILED: "The agent's task failed",
    TaskState.REJECTED: "The agent rejected the task",
    TaskState.CANCELED: "The agent's task was canceled",
}
"""The words for each final state without success."""
_NO_FAILURE: Final = "This is not a failure: the call just has no result yet."
_OWN_FIELDS: Final = frozenset({"content", STRUCTURED, "isError", "resultType"})
_RESERVED_META: Final = "io.modelcontextprotocol/"
"""The prefix of the protocol's own `_meta` keys, which are about the connection to the server, not to the host."""
_MAX_FAULTS: Final = 5
_MAX_FAULT_CHARACTERS: Final = 300


def result_from_task(task: Task, reading: ResultRules) -> JsonObject:
    """The result of a task that has ended.

    Raises:
        ValueError: the task has not ended.
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
    """The notes that the other bridge added to its server's own words."""
    message = task.status.message
    metadata = (message.metadata if message else None) or {}
    return tuple(words for key in REMARKS if isinstance(words := metadata.get(key), str))


def _without_words(task: Task, words: Sequence[str]) -> Task:
    """The task without the bridge's notes."""
    message = task.status.message
    assert message is not None
    parts = tuple(part for part in message.parts if part.text not in words)
    left = message.changed(parts=parts) if parts else None
    return task.changed(status=task.status.changed(message=left))


def result_from_message(message: Message, reading: ResultRules) -> JsonObject:
    """The result when an agent answered with a message. All parts are inlined, since they cannot be fetched later."""
    inlined = _inline(reading)
    own = _peer_fields(message.metadata) if reading.extension_active else {}
    return _checked(blocks_from_parts(message.parts, inlined), message.parts, own, inlined)


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A call without a result yet: its agent asks a question, or still works."""

    words: str
    """The question of the agent, or a sentence that says that the agent still works."""
    state: TaskState
    tool: str
    """The follow-up tool that continues the call."""
    handle: str | None
    """None when no follow-up tools are offered."""
    purpose: str
    """The purpose of the follow-up tool, such as "to answer"."""
    or_else: str = ""
    """Another way to continue, in words after the tool's name."""

    @property
    def meta(self) -> JsonObject:
        """The `_meta` of the result, with the same content for programs."""
        how: JsonObject = {} if self.handle is None else {"tool": self.tool, "handle": self.handle}
        return {UNFINISHED_META: {"state": self.state.value, **how}}


def unfinished_result(call: UnfinishedCall, *, output: Validator | None) -> JsonObject:
    """The result of an unfinished call, in words.

    A tool with an output schema may return plain words only with isError. Many hosts show only the beginning of an
    error, so the words then begin with the next step, and say that this is not a failure.
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
    """The JSON-RPC error (code, message, data) of the server behind another bridge's agent; None without an error."""
    message = task.status.message
    metadata = (message.metadata if message else None) or {}
    peer = metadata.get(PEER)
    error = peer.get("error") if isinstance(peer, dict) and SKILL not in metadata else None
    return error if isinstance(error, dict) else None


def _completed(task: Task, reading: ResultRules) -> JsonObject:
    artifacts, message = task.artifacts or (), task.status.message
    if not artifacts:
        parts = message.parts if message else () if reading.extension_active else _last_words(task)
        own = _peer_fields(message.metadata if message else None) if reading.extension_active else {}
        return _checked(blocks_from_parts(parts, _inline(reading)), parts, own, reading)
    parts = tuple(part for artifact in artifacts for part in artifact.parts)
    content = [block for artifact in artifacts for block in _blocks_of(artifact, reading)]
    content += _closing_blocks(message, artifacts, reading)
    if reading.extension_active:
        return _checked(content, parts, _peer_fields(artifacts[0].metadata), reading)
    words = text_of_parts(message.parts) if message else ""
    return _checked(content, parts, {"_meta": {STATUS_META: words}} if words else {}, reading)


def _closing_blocks(
    message: Message | None, artifacts: Sequence[Artifact], reading: ResultRules
) -> Iterator[JsonValue]:
    """The agent's final message as blocks after the artifacts, since a model reads only content. Parts that an artifact
    already holds, whole or in pieces, are left out."""
    if message is None:
        return
    known = [
        joined(artifact.parts[first:end])
        for artifact in artifacts
        for first, end in pieces_in(artifact.parts)
    ]
    texts = (
        {_words_of((part,)) for part in known} | {_words_of(artifact.parts) for artifact in artifacts} | {""}
    )
    closing = [
        part
        for part in message.parts
        if (part not in known if part.text is None else part.text.strip() not in texts)
    ]
    yield from blocks_from_parts(closing, _inline(reading))


def _words_of(parts: Sequence[Part]) -> str:
    return "".join(part.text or "" for part in parts).strip()


def _unsuccessful(task: Task, reading: ResultRules) -> JsonObject:
    state, message = task.status.state, task.status.message
    parts = message.parts if message else ()
    words = blocks_from_parts(parts, _inline(reading))
    partial = [block for artifact in task.artifacts or () for block in _blocks_of(artifact, reading)]
    if not reading.extension_active:
        content = [*words, text_block(f"[{_ENDS[state]}{'' if words else ', and it gave no words for it'}]")]
        return {"content": [*content, *partial], "isError": True, "_meta": {STATE_META: state.value}}
    own = _peer_fields(message.metadata if message else None)
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
    """A successful result, with structured content if the tool has an output schema. If no data fits the schema, an
    error result that says why."""
    marked = structured_in(parts) if reading.extension_active else ()
    if reading.output is None:
        return {"content": content} | ({STRUCTURED: marked[0]} if marked else {}) | own
    # Without a marked part, the last data part is tried first, since agents put their data at the end.
    data = marked or tuple(part.data for part in reversed(parts) if part.kind == "data")
    for value in data or _json_in_texts(parts, reading.output):
        if not _faults_of(value, reading.output):
            blocks = content if marked else _without_twin(content, value)
            return {"content": blocks, STRUCTURED: value} | own
    why = "; ".join(_faults_of(data[0], reading.output)) if data else "it holds no data"
    words = f"The agent's result does not fit the output schema of the tool: {why}. The agent gave:"
    failed: list[JsonValue] = [text_block(words), *content]
    failed += [
        text_block(as_json(value)) for value in marked if not any(repeats(block, value) for block in content)
    ]
    result: JsonObject = {"content": failed, "isError": True}
    return result | own


def _json_in_texts(parts: Sequence[Part], output: Validator) -> tuple[JsonValue, ...]:
    """The JSON values in texts, when there is no data. Another bridge's agent sends only text if the extension was not
    activated, and a proxy may remove the header that activates it."""
    texts = [part.text for part in parts if part.text is not None]
    plain = [value for text in texts for value in json_in(text)]
    wraps = isinstance(output.schema, dict) and tuple(properties_of(output.schema)) == (WRAPPED,)
    return (*plain, *({WRAPPED: value} for value in (*texts, *plain) if wraps))


def _without_twin(content: list[JsonValue], value: JsonValue) -> list[JsonValue]:
    """Content that repeats the structured content only once: the text that the bridge made is dropped if the agent sent
    one."""
    twins = [block for block in content if repeats(block, value)]
    ours = [block for block in twins if isinstance(block, dict) and PART_META in _meta_of(block)]
    return content if len(ours) == len(twins) else [block for block in content if block not in ours]


def _meta_of(block: JsonObject) -> JsonObject:
    meta = block.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _faults_of(value: JsonValue, schema: Validator) -> tuple[str, ...]:
    """The faults of a value against a schema, in words; empty when the bridge cannot check the value."""
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
    fields = artifact.to_object()
    about = {key: value for key, value in fields.items() if key not in ("parts", "extensions")}
    first: JsonObject = {**blocks[0], "_meta": {**_meta_of(blocks[0]), ARTIFACT_META: about}}
    return [first, *blocks[1:]]


def _inline(reading: ResultRules) -> ResultRules:
    """The rules for messages, whose parts never become links: the bridge serves only parts of artifacts at a URI."""
    return replace(reading, inline_limit_bytes=None, preview=None)


def _last_words(task: Task) -> tuple[Part, ...]:
    """The agent's messages since the last message to the agent; without such messages, the agent's last message."""
    history = task.history or ()
    since = [*takewhile(lambda message: message.role is Role.AGENT, reversed(history))]
    last = since or [message for message in reversed(history) if message.role is Role.AGENT][:1]
    return tuple(part for message in reversed(last) for part in message.parts)


def _peer_fields(metadata: JsonObject | None) -> JsonObject:
    """The server's `_meta` and unknown fields, which another bridge's agent passed on."""
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
    """A value that was too deep for data, parsed from its JSON text."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
