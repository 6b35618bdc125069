"""What a turn leads to: a call, a question, or an end. Each conversation is played message by message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.a2a.model.errors import CONTENT_TYPE_NOT_SUPPORTED, A2AError
from bridge.a2a.model.objects import Message, Part, SendMessageConfiguration, TaskState
from bridge.a2a.tasks.agent import Turn
from bridge.identity.callers.principals import LOCAL
from bridge.mcp.tools import Tool
from bridge.tools_as_agent.resume_state import Decision, End, RequireInput, RunTool
from bridge.tools_as_agent.route import decide
from bridge.tools_as_agent.skills import skills_of
from bridge.translate.extensions.bridge import ANSWER, QUESTION, SKILL, URI
from tests.support.tools import options_with, tool, tool_of

OPTIONS = options_with()
POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
ECHO = tool("echo", "text", text={"type": "string"}, times={"type": "integer"})
ADD = tool("add", "a b", a={"type": "number"}, b={"type": "number"})
MANY = tool(
    "many", "text count size", text={"type": "string"}, count={"type": "integer"}, size={"type": "integer"}
)
DEEP = tool("deep", "point", point=POINT)
MAYBE = tool("maybe", limit={"anyOf": [{"type": "integer"}, {"type": "null"}]})
UPLOAD = tool("upload", "file", file={"type": "string", "contentEncoding": "base64", "minLength": 4})
CLOSED = tool_of(
    {
        "name": "closed",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }
)
STRUCTURED = tool("structured", listed={"outputSchema": {"type": "object"}})
ALL = skills_of([("demo", one) for one in (ECHO, ADD, MANY, DEEP, MAYBE, UPLOAD, CLOSED, STRUCTURED)], {})


def turn(*parts: Any, metadata: Any = None, kept: bytes = b"", **fields: Any) -> Turn:
    read = tuple(Part(text=one) if isinstance(one, str) else Part.model_validate(one) for one in parts)
    message = Message(message_id="m", role="ROLE_USER", parts=read, metadata=metadata)
    configuration = SendMessageConfiguration.model_validate(fields)
    return Turn(LOCAL, message, configuration, {}, frozenset(), kept=kept)


def data(value: Any) -> dict[str, Any]:
    return {"data": value}


def call(skill: str, **arguments: Any) -> dict[str, Any]:
    return data({"skill": skill, "arguments": arguments})


def conversation(*turns: Any) -> list[Decision]:
    """The decisions on some messages, each of which answers the question before it."""
    decisions: list[Decision] = []
    kept = b""
    for said in turns:
        parts, metadata = said if isinstance(said, tuple) else ([said], None)
        decision = decide(turn(*parts, metadata=metadata, kept=kept), ALL, OPTIONS)
        kept = decision.kept if isinstance(decision, RequireInput) else b""
        decisions.append(decision)
    return decisions


def run(called: Tool, **arguments: Any) -> RunTool:
    return RunTool(ALL.by_id[called.name], arguments)


@pytest.mark.proves("map-arguments")
@pytest.mark.parametrize(
    ("turns", "last"),
    [
        ([call("echo", text="a")], run(ECHO, text="a")),
        ([call("add", a=1), data({"b": 2})], run(ADD, a=1, b=2)),
        ([call("add", a=1), "2"], run(ADD, a=1, b=2)),
        ([call("add", a=1), "b=2"], run(ADD, a=1, b=2)),
        ([call("add", a="one", b=2), "1"], run(ADD, a=1, b=2)),
        ([call("add"), "a=1", "2.5"], run(ADD, a=1, b=2.5)),
        ([call("add"), data({"a": "1", "b": "2"})], run(ADD, a=1, b=2)),
        ([call("echo"), "no"], run(ECHO, text="no")),
        ([call("many", text="keep"), "5 and 6", "count=5 size=6"], run(MANY, text="keep", count=5, size=6)),
        ([call("deep"), '{"x": 1}'], run(DEEP, point={"x": 1})),
        ([call("deep"), data({"point": '{"x": 1}'})], run(DEEP, point={"x": 1})),
        ([call("deep", point={"x": "no"}), '{"point": {"x": 2}}'], run(DEEP, point={"x": 2})),
        ([call("maybe", limit="many"), "5"], run(MAYBE, limit=5)),
        ([call("maybe", limit="many"), data({"limit": "null"})], run(MAYBE, limit=None)),
        (["what now", "echo text=hi"], run(ECHO, text="hi")),
        (["what now", call("echo"), "hi"], run(ECHO, text="hi")),
        ([call("closed", a="x", b=1), "go on"], run(CLOSED, a="x")),
        ([call("closed", b=1), "x"], run(CLOSED, a="x")),
    ],
)
def test_answers_over_several_turns_lead_to_the_call(turns: list[Any], last: RunTool) -> None:
    *questions, found = conversation(*turns)
    assert found == last
    assert all(isinstance(question, RequireInput) for question in questions)


@pytest.mark.proves("map-arguments")
def test_a_question_names_every_property_at_fault() -> None:
    (question,) = conversation(call("many", count="five", other=1))
    assert isinstance(question, RequireInput)
    assert question.metadata[QUESTION] == "arguments"
    assert question.parts[0].text == (
        "To run many I need:\n"
        "- text (string, required) [missing]\n"
        "- count (integer, required) ['five' is not of type 'integer']\n"
        "- size (integer, required) [missing]"
    )


@pytest.mark.proves("map-arguments")
def test_after_an_answer_that_does_not_fit_the_question_is_asked_again_with_the_known_arguments() -> None:
    _, again = conversation(call("many", text="keep"), "5 and 6")
    assert isinstance(again, RequireInput)
    form = again.parts[1].data
    assert isinstance(form, dict)
    assert form["arguments"] == {"text": "keep"}


@pytest.mark.proves("map-route")
@pytest.mark.parametrize("said", ["what now", call("sing"), data([1]), {"raw": "AAAA"}])
def test_a_message_that_means_no_tool_gets_the_question_which_skill(said: Any) -> None:
    (question,) = conversation(said)
    assert isinstance(question, RequireInput)
    assert question.metadata[QUESTION] == "which-skill"


@pytest.mark.proves("map-refuse")
@pytest.mark.parametrize("first", ["what now", call("add")])
@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ((["x"], {ANSWER: "decline"}), TaskState.REJECTED),
        ((["x"], {ANSWER: "cancel"}), TaskState.CANCELED),
        (data({"action": "decline"}), TaskState.REJECTED),
        (data({"action": "cancel"}), TaskState.CANCELED),
    ],
)
def test_a_refused_question_ends_the_task(first: Any, answer: Any, state: TaskState) -> None:
    _, end = conversation(first, answer)
    assert isinstance(end, End)
    assert end.state is state


@pytest.mark.proves("map-refuse")
def test_a_refusal_without_a_question_is_only_a_message() -> None:
    (asked,) = conversation((["no"], {ANSWER: "cancel"}))
    assert isinstance(asked, RequireInput)
    (ran,) = conversation((["x"], {ANSWER: "decline", SKILL: "echo"}))
    assert ran == run(ECHO, text="x")


@pytest.mark.proves("map-arguments-extension")
@pytest.mark.parametrize("arguments", [{}, {"a": "no number"}, {"c": [None]}])
def test_with_the_extension_arguments_are_passed_through(arguments: Any) -> None:
    active = replace(turn(call("add", **arguments)), extensions=frozenset({URI}))
    assert decide(active, ALL, OPTIONS) == run(ADD, **arguments)
    assert isinstance(decide(active, ALL, options_with(incomplete="reject")), RunTool)


@pytest.mark.proves("map-arguments")
def test_a_profile_may_reject_instead_of_asking() -> None:
    end = decide(turn(call("add", a=1)), ALL, options_with(incomplete="reject"))
    assert end == End(
        TaskState.REJECTED,
        "The arguments do not fit the schema of add: b (number, required) [missing]",
    )


PNG = {"raw": "AAAA", "mediaType": "image/png"}


@pytest.mark.proves("map-files")
@pytest.mark.parametrize(
    ("turns", "last"),
    [
        ([(["upload", PNG], None)], run(UPLOAD, file="AAAA")),
        ([call("upload"), PNG], run(UPLOAD, file="AAAA")),
        ([call("upload", file="no"), PNG], run(UPLOAD, file="AAAA")),
    ],
)
def test_a_file_fills_the_property_that_asks_for_it(turns: list[Any], last: RunTool) -> None:
    assert conversation(*turns)[-1] == last


@pytest.mark.proves("map-files")
@pytest.mark.parametrize("turns", [[([call("echo", text="a"), PNG], None)], [call("add"), ([PNG], None)]])
def test_a_file_that_fits_no_property_is_refused(turns: list[Any]) -> None:
    with pytest.raises(A2AError, match="takes no file of this kind: image/png") as refused:
        conversation(*turns)
    assert refused.value.kind is CONTENT_TYPE_NOT_SUPPORTED


@pytest.mark.proves("a2a-accepted-modes")
@pytest.mark.parametrize(
    ("called", "accepted"),
    [
        (STRUCTURED, []),
        (STRUCTURED, ["application/json"]),
        (STRUCTURED, ["image/png", "text"]),
        (MAYBE, ["image/png"]),
    ],
)
def test_a_skill_whose_output_is_accepted_is_run(called: Tool, accepted: list[str]) -> None:
    assert decide(turn(call(called.name), acceptedOutputModes=accepted), ALL, OPTIONS) == run(called)


@pytest.mark.proves("a2a-accepted-modes")
@pytest.mark.parametrize("accepted", [["image/png"], ["audio/*", "video"]])
def test_output_that_cannot_be_accepted_is_refused_before_the_run(accepted: list[str]) -> None:
    with pytest.raises(A2AError, match="none of it is accepted") as refused:
        decide(turn(call("structured"), acceptedOutputModes=accepted), ALL, OPTIONS)
    assert refused.value.kind is CONTENT_TYPE_NOT_SUPPORTED


@pytest.mark.proves("map-route")
def test_an_answer_about_a_tool_that_is_gone_gets_the_question_which_skill() -> None:
    question = decide(turn(call("add", a=1)), ALL, OPTIONS)
    assert isinstance(question, RequireInput)
    again = decide(turn("2", kept=question.kept), skills_of([("demo", ECHO), ("demo", MANY)], {}), OPTIONS)
    assert isinstance(again, RequireInput)
    assert again.metadata[QUESTION] == "which-skill"
