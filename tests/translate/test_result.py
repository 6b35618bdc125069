"""Agents' answers as tool results: the golden files read backwards, and each row of the table."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from bridge.a2a.model.objects import AppendedText, Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.mcp.schemas import validator_of
from bridge.translate.blocks import ResultRules, blocks_from_parts
from bridge.translate.content import PART_META, LinkRules, Repeated, parts_from_result, peer_metadata
from bridge.translate.extensions.bridge import BLOCK, GATED, PEER, SKILL
from bridge.translate.outcome import error_metadata, parts_of_failure
from bridge.translate.result import (
    ARTIFACT_META,
    STATE_META,
    STATUS_META,
    UNFINISHED_META,
    UnfinishedCall,
    result_from_message,
    result_from_task,
    server_error_in,
    unfinished_result,
)

GOLDEN = Path(__file__).with_name("golden")
CASES = sorted(path.name.removesuffix(".mcp.json") for path in GOLDEN.glob("*.mcp.json"))
ACTIVE, PLAIN = ResultRules(extension_active=True), ResultRules()
N_SCHEMA = validator_of({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
IMAGE = Part(raw="iVBORw0K", media_type="image/png")


def text(words: str) -> Any:
    return {"type": "text", "text": words}


def said(*parts: Part, metadata: Any = None, role: Role = Role.AGENT) -> Message:
    return Message(message_id="m", role=role, parts=parts, metadata=metadata)


def artifact(*parts: Part, **more: Any) -> Artifact:
    return Artifact(artifact_id="a", parts=parts, **more)


def task(
    state: TaskState = TaskState.COMPLETED,
    *artifacts: Artifact,
    message: Message | None = None,
    history: tuple[Message, ...] | None = None,
) -> Task:
    return Task(
        id="t", status=TaskStatus(state=state, message=message), artifacts=artifacts or None, history=history
    )


def task_of(result: Any, *, active: bool = True, repeated: Repeated = Repeated.BOTH) -> Task:
    """The task that an agent of a bridge makes from a result, as a client sees it."""
    parts = parts_from_result(result, LinkRules(extension_active=active, allow_file=True), repeated)
    metadata = {SKILL: "s"} | ({PEER: peer} if (peer := peer_metadata(result)) else {})
    if result.get("isError") is True:
        made = task(TaskState.FAILED, message=said(*parts_of_failure(parts), metadata=metadata))
    else:
        made = task(TaskState.COMPLETED, *([artifact(*parts, name="s", metadata=metadata)] if parts else []))
    shown = ExtensionFilter(GATED).filtered(
        made.to_json(), frozenset(GATED.values()) if active else frozenset()
    )
    return Task.model_validate(from_json(shown))


@pytest.mark.proves("map-result-exact")
@pytest.mark.parametrize("case", CASES)
def test_with_the_extension_a_result_comes_back_unchanged(case: str) -> None:
    result = json.loads((GOLDEN / f"{case}.mcp.json").read_text(encoding="utf-8"))
    back = result_from_task(task_of(result), ACTIVE)
    if result.get("isError"):
        assert back.pop("_meta") == {STATE_META: "TASK_STATE_FAILED"}
    assert back == {"content": [], **result}


@pytest.mark.proves("map-result-exact")
@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "isError": True},
        {"content": [text("")], "isError": True},
        {"content": [text("The tool failed and gave no words for it")], "isError": True},
        {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}], "isError": True},
        {"content": [text("no")], "structuredContent": {"code": 1}, "isError": True},
    ],
)
def test_with_the_extension_a_failure_comes_back_unchanged(result: Any) -> None:
    assert result_from_task(task_of(result), ACTIVE) == {
        **result,
        "_meta": {STATE_META: "TASK_STATE_FAILED"},
    }


@pytest.mark.proves("map-result-exact")
def test_a_servers_metadata_and_unknown_fields_come_back() -> None:
    result = {"content": [text("a")], "_meta": {"example.com/x": [1]}, "tomorrow": {"a": None}}
    assert result_from_task(task_of(result), ACTIVE) == result
    failed = {**result, "isError": True}
    back = result_from_task(task_of(failed), ACTIVE)
    assert back == {**failed, "_meta": {"example.com/x": [1], STATE_META: "TASK_STATE_FAILED"}}


@pytest.mark.proves("map-result-exact")
def test_metadata_that_was_too_deep_comes_back_unchanged() -> None:
    deep: Any = []
    for _ in range(80):
        deep = {"a": deep}
    result = {"content": [text("a")], "_meta": deep}
    assert result_from_task(task_of(result), ACTIVE) == result


@pytest.mark.proves("mcp-meta-reserved")
def test_a_server_cannot_set_the_protocols_own_keys_or_fields_of_the_result() -> None:
    peer = {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": "x"}, "a": 1}, "isError": True}
    made = task(TaskState.COMPLETED, artifact(Part(text="a"), metadata={SKILL: "s", PEER: peer}))
    assert result_from_task(made, ACTIVE) == {"content": [text("a")], "_meta": {"a": 1}}


@pytest.mark.proves("map-result")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "image"},
        {"type": "resource"},
        {"type": "resource", "resource": "x"},
        {"type": "resource_link"},
        {"type": "block", "spelled": True},
        {"type": ["text"]},
        {"type": None},
        {},
        "text",
        7,
    ],
)
@pytest.mark.parametrize("part", [Part(text="not json"), Part(url="https://a/b"), Part(raw="AAAA")])
def test_metadata_that_does_not_fit_its_part_is_ignored(part: Part, block: Any) -> None:
    marked = part.model_copy(update={"metadata": {BLOCK: block}})
    (found,) = blocks_from_parts([marked], ACTIVE)
    assert isinstance(found, dict)
    assert found["type"] in ("text", "resource", "resource_link")


@pytest.mark.proves("map-result")
def test_without_the_extension_the_block_metadata_is_ignored() -> None:
    forged = Part(text="seen", metadata={BLOCK: {"type": "added"}})
    (block,) = blocks_from_parts([forged], PLAIN)
    assert isinstance(block, dict)
    assert block["text"] == "seen"


@pytest.mark.proves("map-result")
@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Part(text="a"), text("a")),
        (Part(text="a", media_type="text/plain"), text("a")),
        (
            Part(text="# a", media_type="text/markdown", filename="a.md"),
            {**text("# a"), "_meta": {PART_META: {"filename": "a.md"}}},
        ),
        (
            Part(raw="-_-_", media_type="image/png"),
            {"type": "image", "data": "+/+/", "mimeType": "image/png"},
        ),
        (Part(raw="AAA", media_type="audio/wav"), {"type": "audio", "data": "AAA=", "mimeType": "audio/wav"}),
        (
            Part(raw="AAAA", media_type="application/pdf", filename="a b.pdf"),
            {
                "type": "resource",
                "resource": {
                    "uri": "attachment:a%20b.pdf",
                    "title": "a b.pdf",
                    "mimeType": "application/pdf",
                    "blob": "AAAA",
                },
                "_meta": {PART_META: {"filename": "a b.pdf"}},
            },
        ),
        (Part(raw="AAAA"), {"type": "resource", "resource": {"uri": "attachment:file", "blob": "AAAA"}}),
        (
            Part(raw="AAAA", media_type="application/pdf"),
            {
                "type": "resource",
                "resource": {"uri": "attachment:file.pdf", "mimeType": "application/pdf", "blob": "AAAA"},
            },
        ),
        (
            Part(url="https://example.com/dir/a.txt", media_type="text/csv"),
            {
                "type": "resource_link",
                "uri": "https://example.com/dir/a.txt",
                "name": "a.txt",
                "mimeType": "text/csv",
            },
        ),
        (
            Part(url="https://example.com/x", filename="n"),
            {"type": "resource_link", "uri": "https://example.com/x", "name": "n"},
        ),
        (
            Part(data={"é": [None]}, media_type="application/json"),
            {**text('{"é": [null]}'), "_meta": {PART_META: {"kind": "data"}}},
        ),
        (Part(data=None), {**text("null"), "_meta": {PART_META: {"kind": "data"}}}),
        (Part(text="a", metadata={"k": 1}), {**text("a"), "_meta": {PART_META: {"metadata": {"k": 1}}}}),
    ],
)
def test_each_kind_of_part_becomes_its_block(part: Part, block: Any) -> None:
    if part.media_type == "text/markdown":
        block["_meta"][PART_META]["mediaType"] = "text/markdown"
    assert blocks_from_parts([part], PLAIN) == [block]


@pytest.mark.proves("map-result")
def test_artifacts_keep_their_order_and_each_first_block_describes_its_artifact() -> None:
    one, two = artifact(Part(text="1"), Part(text="2"), name="one"), artifact(Part(text="3"))
    assert result_from_task(task(TaskState.COMPLETED, one, two, message=said(Part(text="done"))), PLAIN) == {
        "content": [
            {**text("1"), "_meta": {ARTIFACT_META: {"artifactId": "a", "name": "one"}}},
            text("2"),
            {**text("3"), "_meta": {ARTIFACT_META: {"artifactId": "a"}}},
            text("done"),
        ],
        "_meta": {STATUS_META: "done"},
    }


@pytest.mark.proves("map-result")
@pytest.mark.parametrize("reading", [PLAIN, ACTIVE])
@pytest.mark.parametrize(
    ("closing", "told"),
    [
        ([Part(text="It took an hour")], ["It took an hour"]),
        ([Part(text="one two")], []),
        ([Part(text=" two\n"), Part(text="  ")], []),
        ([Part(text="two"), Part(text="and more")], ["and more"]),
    ],
)
def test_an_agents_final_message_follows_its_artifacts_once(
    closing: list[Part], told: list[str], reading: ResultRules
) -> None:
    gave = artifact(Part(text="one "), AppendedText(text="two")), artifact(Part(text="two"))
    content = result_from_task(task(TaskState.COMPLETED, *gave, message=said(*closing)), reading)["content"]
    given = 2 if reading is PLAIN else 3
    assert [block["text"] for block in content[given:]] == told


@pytest.mark.proves("map-result")
def test_files_and_data_in_the_final_message_are_not_dropped() -> None:
    closing = said(Part(text="see"), Part(data={"pages": 3}), IMAGE)
    content = result_from_task(task(TaskState.COMPLETED, artifact(Part(text="a")), message=closing), PLAIN)[
        "content"
    ]
    assert [(block["type"], block.get("text")) for block in content[1:]] == [
        ("text", "see"),
        ("text", '{"pages": 3}'),
        ("image", None),
    ]


@pytest.mark.proves("map-result")
def test_a_streamed_text_is_one_block_and_with_the_extension_the_original_blocks() -> None:
    came = task(
        TaskState.COMPLETED, artifact(Part(text="one "), AppendedText(text="two"), Part(text="three"))
    )
    about = {"_meta": {ARTIFACT_META: {"artifactId": "a"}}}
    assert result_from_task(came, PLAIN) == {"content": [{**text("one two"), **about}, text("three")]}
    assert result_from_task(came, ACTIVE) == {"content": [text("one "), text("two"), text("three")]}


@pytest.mark.proves("map-result")
def test_without_artifacts_the_result_is_the_status_message_or_the_agents_last_message() -> None:
    history = (
        said(Part(text="first")),
        said(Part(text="last")),
        said(Part(text="mine"), role=Role.USER),
    )
    done = task(message=said(Part(text="done")), history=history)
    assert result_from_task(done, PLAIN) == {"content": [text("done")]}
    assert result_from_task(task(history=history), PLAIN) == {"content": [text("last")]}
    assert result_from_task(task(history=history[1::-1]), PLAIN) == {"content": [text("last"), text("first")]}
    spoken_to = (said(Part(text="asked")), history[2], said(Part(text="half")), said(Part(text="all")))
    assert result_from_task(task(history=spoken_to), PLAIN) == {"content": [text("half"), text("all")]}
    assert result_from_task(task(), PLAIN) == {"content": []}
    assert result_from_task(task(history=history), ACTIVE) == {"content": []}


@pytest.mark.proves("map-result-failed")
@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TaskState.FAILED, "The agent's task failed"),
        (TaskState.REJECTED, "The agent rejected the task"),
        (TaskState.CANCELED, "The agent's task was canceled"),
    ],
)
def test_a_task_without_success_is_an_error_with_the_agents_words_and_artifacts(
    state: TaskState, words: str
) -> None:
    partial = artifact(Part(text="half"))
    half = {**text("half"), "_meta": {ARTIFACT_META: {"artifactId": "a"}}}
    assert result_from_task(task(state, partial, message=said(Part(text="why"), IMAGE)), PLAIN) == {
        "content": [
            text("why"),
            {"type": "image", "data": "iVBORw0K", "mimeType": "image/png"},
            text(f"[{words}]"),
            half,
        ],
        "isError": True,
        "_meta": {STATE_META: state.value},
    }
    assert result_from_task(task(state), PLAIN)["content"] == [
        text(f"[{words}, and it gave no words for it]")
    ]
    assert result_from_task(task(state, partial, message=said(Part(text="why"))), ACTIVE) == {
        "content": [text("why"), text("half")],
        "isError": True,
        "_meta": {STATE_META: state.value},
    }


@pytest.mark.proves("map-result")
@pytest.mark.parametrize("state", sorted(set(TaskState) - {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"}))
def test_an_unfinished_task_has_no_result(state: TaskState) -> None:
    if state in (TaskState.REJECTED, TaskState.CANCELED):
        return
    with pytest.raises(ValueError, match="has no result"):
        result_from_task(task(state), PLAIN)


WITH_OUTPUT = ResultRules(output=N_SCHEMA)
DATA = Part(data={"n": 1}, media_type="application/json")


@pytest.mark.proves("map-result-schema", "mcp-tools-output")
@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ((Part(text='{"n": 1}'), DATA), [text('{"n": 1}')]),
        ((Part(text="one"), DATA), [text("one"), text('{"n": 1}')]),
        ((DATA, Part(data={"other": 2})), [text('{"n": 1}'), text('{"other": 2}')]),
    ],
)
def test_data_that_fits_the_schema_is_structured_content_and_appears_once_as_text(
    parts: tuple[Part, ...], content: Any
) -> None:
    result = result_from_task(task(TaskState.COMPLETED, artifact(*parts)), WITH_OUTPUT)
    assert result["structuredContent"] == {"n": 1}
    assert [text(block["text"]) for block in result["content"]] == content


@pytest.mark.proves("map-result-schema", "mcp-tools-output")
@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((Part(text="only words"),), "it holds no data"),
        ((Part(data={"n": "x"}),), "at n: 'x' is not of type 'integer'"),
        ((Part(data=[]),), "[] is not of type 'object'"),
    ],
)
def test_a_result_that_does_not_fit_the_schema_is_an_error_that_names_the_fault(
    parts: tuple[Part, ...], why: str
) -> None:
    result = result_from_task(task(TaskState.COMPLETED, artifact(*parts)), WITH_OUTPUT)
    assert result["isError"] is True
    assert "structuredContent" not in result
    first, second = result["content"]
    assert why in first["text"]
    assert second["text"] == (parts[0].text or json.dumps(parts[0].data))


@pytest.mark.proves("map-result-schema")
def test_marked_data_that_does_not_fit_the_schema_is_not_lost() -> None:
    made = task_of({"content": [text("n")], "structuredContent": {"n": "x"}})
    result = result_from_task(made, ResultRules(extension_active=True, output=N_SCHEMA))
    assert result["isError"] is True
    assert result["content"][1:] == [text("n"), text('{"n": "x"}')]


@pytest.mark.proves("map-result")
@pytest.mark.parametrize("case", ["structured"])
def test_without_the_extension_structured_content_and_its_text_come_back_too(case: str) -> None:
    result = json.loads((GOLDEN / f"{case}.mcp.json").read_text(encoding="utf-8"))
    back = result_from_task(task_of(result, active=False), WITH_OUTPUT)
    assert back["structuredContent"] == result["structuredContent"]
    texts = [block["text"] for block in back["content"]]
    assert texts == [block["text"] for block in result["content"]]


WRAPPED_SCHEMA = validator_of({"type": "object", "properties": {"result": {}}, "required": ["result"]})


@pytest.mark.proves("map-result")
@pytest.mark.parametrize(
    ("output", "words", "structured"),
    [
        (N_SCHEMA, '{"n": 1}', {"n": 1}),
        (WRAPPED_SCHEMA, "Hello, Ada!", {"result": "Hello, Ada!"}),
        (validator_of({"type": "object", "properties": {"result": {"type": "integer"}}}), "5", {"result": 5}),
    ],
)
def test_without_the_extension_json_text_becomes_structured_content_again(
    output: Any, words: str, structured: Any
) -> None:
    result = {"content": [text(words)], "structuredContent": structured}
    made = task_of(result, active=False, repeated=Repeated.TEXT)
    assert made.artifacts is not None
    assert [part.to_object() for part in made.artifacts[0].parts] == [{"text": words}]
    back = result_from_task(made, ResultRules(extension_active=True, output=output))
    assert {key: back[key] for key in result} == result


@pytest.mark.proves("map-large-part")
def test_a_part_over_the_limit_becomes_a_link_except_in_a_message() -> None:
    reading = ResultRules(inline_limit_bytes=5, link_for=lambda part: f"a2a://x/{part.kind}")
    parts = (
        Part(text="12345"),
        Part(text="1234é", filename="n.txt"),
        IMAGE,
        Part(url="https://example.com/long"),
    )
    links = result_from_task(task(TaskState.COMPLETED, artifact(*parts)), reading)["content"]
    assert [block["type"] for block in links] == ["text", "resource_link", "resource_link", "resource_link"]
    assert links[1] == {
        "type": "resource_link",
        "uri": "a2a://x/text",
        "name": "n.txt",
        "title": "n.txt",
        "size": 6,
        "mimeType": "text/plain",
    }
    assert links[2]["uri"] == "a2a://x/raw"
    inlined = result_from_message(said(*parts), reading)["content"]
    assert [block["type"] for block in inlined] == ["text", "text", "image", "resource_link"]
    failed = result_from_task(task(TaskState.FAILED, message=said(IMAGE)), reading)["content"]
    assert failed[0]["type"] == "image"


@pytest.mark.proves("map-result-exact")
def test_with_the_extension_no_part_is_too_large() -> None:
    reading = ResultRules(extension_active=True, inline_limit_bytes=1, link_for=lambda _: "x:")
    result = {"content": [text("long")]}
    assert result_from_task(task_of(result), reading) == result


@pytest.mark.proves("map-result")
def test_a_withheld_link_is_mentioned_in_words() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    parts = parts_from_result({"content": [link]}, LinkRules(extension_active=True))
    assert blocks_from_parts(parts, ACTIVE) == [text("[a: a link to a file of the server, not passed on]")]


@pytest.mark.proves("map-result")
def test_a_message_is_the_result() -> None:
    assert result_from_message(said(Part(text="hi")), PLAIN) == {"content": [text("hi")]}
    assert result_from_message(said(DATA), WITH_OUTPUT)["structuredContent"] == {"n": 1}
    assert result_from_message(said(Part(text="hi")), WITH_OUTPUT)["isError"] is True


UNFINISHED = UnfinishedCall("Which colour?", TaskState.INPUT_REQUIRED, "task_reply", "h4ndle", "to answer")


@pytest.mark.proves("map-slow-agent")
def test_an_unfinished_result_says_how_to_go_on() -> None:
    meta: Any = {
        UNFINISHED_META: {"state": "TASK_STATE_INPUT_REQUIRED", "tool": "task_reply", "handle": "h4ndle"}
    }
    words = "Which colour?\n\nTo answer, call task_reply with this handle: h4ndle"
    assert unfinished_result(UNFINISHED, output=None) == {"content": [text(words)], "_meta": meta}
    begun = (
        "Not finished: call task_reply with handle h4ndle to answer. This is not a failure: the call just has"
        " no result yet.\n\nWhich colour?"
    )
    assert unfinished_result(UNFINISHED, output=N_SCHEMA) == {
        "content": [text(begun)],
        "isError": True,
        "_meta": meta,
    }


@pytest.mark.proves("map-slow-agent")
def test_an_unfinished_result_that_cannot_be_followed_says_so() -> None:
    lost, meta = replace(UNFINISHED, handle=None), {UNFINISHED_META: {"state": "TASK_STATE_INPUT_REQUIRED"}}
    words = "Which colour?\n\nThis server offers no task_reply, so it cannot be followed from here"
    assert unfinished_result(lost, output=None) == {"content": [text(words)], "_meta": meta}
    begun = (
        "Not finished: this server offers no task_reply, so it cannot be followed from here. This is not a failure:"
        " the call just has no result yet.\n\nWhich colour?"
    )
    assert unfinished_result(lost, output=N_SCHEMA) == {
        "content": [text(begun)],
        "isError": True,
        "_meta": meta,
    }


@pytest.mark.proves("map-result-failed")
def test_an_error_of_the_server_behind_an_agent_differs_from_a_result_of_its_tool() -> None:
    metadata = error_metadata(-32602, "no such tool", {"a": 1})
    refused = task(TaskState.REJECTED, message=said(Part(text="no"), metadata=metadata))
    assert server_error_in(refused) == {"code": -32602, "message": "no such tool", "data": {"a": 1}}
    assert server_error_in(task_of({"content": [], "isError": True, "error": {"code": 1}})) is None
    assert server_error_in(task(TaskState.FAILED)) is None


@pytest.mark.proves("map-result")
def test_every_result_can_be_serialized() -> None:
    forged = Part(text="[" * 100_000, metadata={BLOCK: {"type": "block", "spelled": True}})
    assert to_json(blocks_from_parts([forged], ACTIVE))


def a_value(chance: random.Random, depth: int = 0) -> Any:
    plain = [None, True, 0, 2.5, "", "é\u2028", "x" * 20]
    if depth > 3 or chance.random() < 0.5:
        return chance.choice(plain)
    inner = [a_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return inner if chance.random() < 0.5 else dict(zip("abc", inner, strict=False))


def a_block(chance: random.Random, structured: Any) -> Any:
    held = chance.choice([{"text": "t"}, {"blob": "AA=="}, {"blob": "%"}, {}, {"text": 1}])
    block = chance.choice(
        [
            text(chance.choice(["", "words", json.dumps(structured)])),
            {
                "type": chance.choice(["image", "audio"]),
                "data": "AAAA",
                "mimeType": chance.choice(["image/x", "v/x", 1]),
            },
            {"type": "resource", "resource": {"uri": chance.choice(["demo://a/b", "[", 1]), **held}},
            {"type": "resource_link", "uri": chance.choice(["https://a/b", "demo:x", "file:///x", "", 7])},
            {"type": chance.choice(["block", "structuredContent", "added", "hologram", None])},
            a_value(chance),
        ]
    )
    names = [
        "_meta",
        "annotations",
        "mimeType",
        "name",
        "twin",
        "spelled",
        "withheld",
        "text",
        "data",
        "type",
    ]
    if isinstance(block, dict) and chance.random() < 0.5:
        block = {**block, chance.choice(names): a_value(chance)}
    return block


@pytest.mark.proves("map-result-exact")
def test_with_the_extension_any_result_comes_back_unchanged() -> None:
    for seed in range(300):
        result, back = a_result(random.Random(seed))
        assert back == result, seed


def a_result(chance: random.Random) -> tuple[Any, Any]:
    """A result by chance, and what comes back, without what is told of the state of its task."""
    structured = a_value(chance)
    result: Any = {"content": [a_block(chance, structured) for _ in range(chance.randrange(5))]}
    if chance.random() < 0.5:
        result["structuredContent"] = structured
    if chance.random() < 0.3:
        result["_meta"] = {"a": a_value(chance)}
        result["more"] = a_value(chance)
    if not (result["content"] or "structuredContent" in result):
        result = {"content": []}  # without parts there is no artifact to carry more
    if chance.random() < 0.3:
        result["isError"] = True
    back = result_from_task(task_of(result), ACTIVE)
    if result.get("isError"):
        meta = back["_meta"]
        assert isinstance(meta, dict)
        assert meta.pop(STATE_META) == "TASK_STATE_FAILED"
        if "_meta" not in result:
            assert back.pop("_meta") == {}
    return result, back


@pytest.mark.proves("mcp-meta-names")
def test_the_bridges_own_keys_have_its_prefix() -> None:
    ours = [STATE_META, STATUS_META, ARTIFACT_META, UNFINISHED_META, PART_META]
    assert all(re.fullmatch(r"mcp-a2a/[a-z0-9]([a-z0-9._-]*[a-z0-9])?", key) for key in ours)
