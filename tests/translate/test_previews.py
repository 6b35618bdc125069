"""The beginnings and pages of long texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bridge.a2a.model.objects import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from bridge.translate.blocks import ResultRules
from bridge.translate.content import LinkRules, parts_from_result
from bridge.translate.previews import Page, page_of, preview
from bridge.translate.result import result_from_message, result_from_task

pytestmark = pytest.mark.proves("map-preview")


def pages(text: str, limit_bytes: int) -> list[Page]:
    """All pages of a text, each from where the last one ended."""
    found = [page_of(text, 0, limit_bytes)]
    while not found[-1].is_last:
        found.append(page_of(text, found[-1].end_byte, limit_bytes))
    return found


@given(st.text(st.characters(), max_size=300), st.integers(1, 40))
def test_pages_are_the_text_whatever_its_characters(text: str, limit_bytes: int) -> None:
    found = pages(text, limit_bytes)
    assert "".join(page.text for page in found) == text
    assert all(len(page.text.encode(errors="surrogatepass")) <= max(limit_bytes, 4) for page in found)
    assert found[-1].end_byte == found[-1].whole_bytes == len(text.encode(errors="surrogatepass"))


@given(st.text(max_size=50), st.integers(0, 300), st.integers(1, 20))
def test_any_beginning_gives_a_page(text: str, first_byte: int, limit_bytes: int) -> None:
    page = page_of(text, first_byte, limit_bytes)
    assert page.text in text
    assert page.is_last or page.end_byte > page.first_byte


def test_a_page_ends_with_a_line_if_one_is_near() -> None:
    assert page_of("one\ntwo\nthree four", 0, 10).text == "one\ntwo\n"
    assert page_of("a\nbcdefghijklmn", 0, 10).text == "a\nbcdefghi"


def test_half_of_a_surrogate_pair_stays() -> None:
    assert "".join(page.text for page in pages("a\ud800b\udc00", 2)) == "a\ud800b\udc00"


def _rules(
    limit_bytes: int, *, active: bool = False, output: Any = None, has_tool: bool = True
) -> ResultRules:
    shorten: Callable[..., Any] = partial(preview, limit_bytes=limit_bytes, has_tool=has_tool)
    return ResultRules(active, output, 50, lambda part: f"a2a://x/{part.kind}", shorten)


def _task(*parts: Part) -> Task:
    artifact = Artifact(artifact_id="a", parts=parts)
    return Task(id="t", context_id="c", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(artifact,))


def _content(task: Task, rules: ResultRules) -> list[dict[str, Any]]:
    content: Any = result_from_task(task, rules)["content"]
    return [{key: value for key, value in block.items() if key != "_meta"} for block in content]


def test_a_long_text_is_its_beginning_a_sentence_and_a_link() -> None:
    task = _task(Part(text="short"), Part(text="line\n" * 30, filename="log.txt", media_type="text/x-log"))
    assert _content(task, _rules(22)) == [
        {"type": "text", "text": "short"},
        {"type": "text", "text": "line\n" * 4},
        {
            "type": "text",
            "text": "[These are bytes 0 to 20 of 150: the text goes on. To get more, call task_page with first_byte 20"
            " and this link: a2a://x/text]",
        },
        {
            "type": "resource_link",
            "uri": "a2a://x/text",
            "name": "log.txt",
            "title": "log.txt",
            "size": 150,
            "mimeType": "text/x-log",
        },
    ]


def test_without_the_tool_the_sentence_names_the_resource_alone() -> None:
    words = _content(_task(Part(text="x" * 60)), _rules(20, has_tool=False))[1]["text"]
    assert words.endswith("To get more, read the resource a2a://x/text]")


def test_data_is_shortened_as_the_text_that_it_becomes_and_bytes_are_not() -> None:
    content = _content(_task(Part(data=["x"] * 30), Part(raw="A" * 40, media_type="image/png")), _rules(20))
    assert content[0]["text"] == '["x", "x", "x", "x",'
    assert [block["type"] for block in content] == ["text", "text", "resource_link", "image"]


def test_a_server_behind_another_bridge_gets_its_texts_shortened_too() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "y" * 60, "annotations": {"priority": 1}},
        {"type": "resource", "resource": {"uri": "a:b", "text": "z" * 60}},
    ]
    parts = parts_from_result({"content": blocks}, LinkRules(extension_active=True))
    content = _content(_task(*parts), _rules(20, active=True))
    assert [block["type"] for block in content] == ["text", "text", "resource_link", "resource"]
    assert content[3] == blocks[1]


@pytest.mark.parametrize("has_schema", [True, False])
def test_a_text_beside_structured_content_stays_whole(has_schema: bool) -> None:
    structured: dict[str, Any] = {"value": "v" * 60}
    text = '{"value": "' + "v" * 60 + '"}'
    result: Any = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    task = _task(*parts_from_result(result, LinkRules(extension_active=True)))
    output = Draft202012Validator({"type": "object"}) if has_schema else None
    kept = result_from_task(task, _rules(20, active=True, output=output))
    assert kept["structuredContent"] == structured
    assert kept["content"] == [{"type": "text", "text": text}]


def test_what_cannot_be_fetched_again_stays_whole() -> None:
    message = Message(message_id="m", role=Role.AGENT, parts=(Part(text="x" * 60),))
    kept: Any = result_from_message(message, _rules(20))["content"]
    assert [block["text"] for block in kept] == ["x" * 60]
    done = TaskStatus(state=TaskState.COMPLETED, message=message)
    task = Task(id="t", context_id="c", status=done)
    assert _content(task, _rules(20)) == [{"type": "text", "text": "x" * 60}]
