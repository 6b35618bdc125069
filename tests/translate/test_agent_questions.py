"""Agents' questions as elicitations, and their answers; also for questions that another bridge passed on."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

from bridge.a2a.model.objects import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from bridge.mcp.tools import tools_from
from bridge.translate import own_questions
from bridge.translate.agent_questions import (
    MAX_QUESTION_CHARACTERS,
    TEXT_FIELD,
    AgentQuestion,
    AskingTask,
    UnfitAnswerError,
    answer_message,
    elicitation_form_from,
    elicitation_modes_of,
    message_id_of,
    question_words,
    questions_of_agent,
    status_with_question,
    with_lasting_keys,
)
from bridge.translate.arguments import Problem
from bridge.translate.confirmation import (
    answer_to_confirmation,
    call_digest,
    confirmation_key,
    confirmation_metadata,
    parts_of_confirmation,
)
from bridge.translate.elicitation import (
    answers_from,
    elicitation_from,
    parts_of_questions,
    question_metadata,
    state_of_questions,
)
from bridge.translate.extensions.bridge import ANSWER, BLOCK, QUESTION
from bridge.translate.message_to_call import UnclearCall
from bridge.translate.own_questions import ElicitAction
from bridge.translate.refusals import UntoldRefusal
from tests.support.tools import tool

INPUT, AUTH = TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED
WAITING = AskingTask("state", "t", "c")
FORM = {
    "mode": "form",
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": "^x"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
    },
    "_meta": {"a": 1},
}
URL = {"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e1"}


def said(*parts: Part, metadata: Any = None) -> Message:
    return Message(message_id="q1", role=Role.AGENT, parts=parts, metadata=metadata)


def asked_by_us(
    params: dict[str, Any], problems: Any = None, *, active: bool = True
) -> tuple[Message, TaskState]:
    """A server's question as an agent of a bridge asks it, and as its client sees it."""
    asked = [elicitation_from(key, one) for key, one in params.items()]
    parts = parts_of_questions(asked, problems)
    if not active:
        parts = tuple(part.model_copy(update={"metadata": None}) for part in parts)
    return said(*parts, metadata=question_metadata(asked)), state_of_questions(asked)


@pytest.mark.proves("map-ask-back-schema")
@pytest.mark.parametrize(
    "params", [{"k": FORM}, {"k": URL}, {"a": FORM, "b": URL}, {"a": FORM, "b": {**FORM, "message": "?"}}]
)
def test_with_the_extension_a_servers_questions_come_back_unchanged(params: Any) -> None:
    asked = questions_of_agent(*asked_by_us(params), extension_active=True)
    assert {one.key: one.params for one in asked} == params
    assert [one.own_key for one in asked] == list(params)


@pytest.mark.proves("map-confirm", "map-ask-back-schema")
@pytest.mark.parametrize(
    ("action", "active"), [("accept", True), ("decline", True), ("cancel", True), ("accept", False)]
)
def test_a_confirmation_by_the_bridge_is_a_form_without_fields_with_an_explicit_answer(
    action: str, active: bool
) -> None:
    wipe, arguments = tool("wipe", url={"type": "string"}), {"url": "https://evil.example/in"}
    digest = call_digest("s", wipe, arguments)
    parts = parts_of_confirmation("wipe", wipe, arguments, digest)
    message = said(*parts, metadata=confirmation_metadata("wipe", arguments, digest))
    (asked,) = questions_of_agent(message, AUTH, extension_active=active)
    empty = {"type": "object", "properties": {}}
    assert asked.params == {"mode": "form", "message": parts[0].text, "requestedSchema": empty}
    answer = answer_message([asked], {asked.key: {"action": action}}, WAITING)
    assert isinstance(answer, Message)
    assert answer.metadata == {ANSWER: action, QUESTION: confirmation_key(digest)}
    assert answer_to_confirmation(answer, {}, wipe) == action


@pytest.mark.proves("map-ask-back-schema")
def test_without_the_extension_a_question_from_a_bridge_is_asked_by_its_schema() -> None:
    (asked,) = questions_of_agent(*asked_by_us({"k": FORM}, active=False), extension_active=False)
    assert asked.key == asked.own_key == "k"
    assert asked.params == {
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
            "required": ["name"],
        },
    }
    (asked,) = questions_of_agent(*asked_by_us({"k": URL}, active=False), extension_active=False)
    assert asked.params == URL


@pytest.mark.proves("map-ask-back-url", "mcp-elicit-secrets")
def test_without_the_extension_a_user_who_must_authenticate_never_gets_a_form() -> None:
    assert questions_of_agent(*asked_by_us({"a": FORM, "b": URL}, active=False), extension_active=False) == ()
    schema = Part(data={"type": "object", "properties": {"password": {"type": "string"}}})
    assert questions_of_agent(said(Part(text="Password?"), schema), AUTH, extension_active=False) == ()


@pytest.mark.proves("map-ask-back")
@pytest.mark.parametrize("active", [True, False])
def test_a_question_that_is_asked_again_says_why(active: bool) -> None:
    message, state = asked_by_us({"k": FORM}, {"k": (Problem("age", "too young"),)}, active=active)
    (asked,) = questions_of_agent(message, state, extension_active=active)
    assert asked.own_key == "k"
    assert "too young" in str(asked.params["message"])


def ask(*parts: Part, state: TaskState = INPUT, metadata: Any = None) -> tuple[AgentQuestion, ...]:
    return questions_of_agent(said(*parts, metadata=metadata), state, extension_active=False)


@pytest.mark.proves("map-ask-back-schema")
def test_a_question_in_words_becomes_a_form_with_one_text_field() -> None:
    (asked,) = ask(Part(text="Which city?"))
    assert asked.params == {
        "mode": "form",
        "message": "Which city?",
        "requestedSchema": {
            "type": "object",
            "properties": {TEXT_FIELD: {"type": "string", "title": "Answer"}},
            "required": [TEXT_FIELD],
        },
    }
    assert asked.own_key is None
    (again,) = questions_of_agent(said(Part(text="x")), INPUT, extension_active=False)
    assert again.key == asked.key  # of the same message
    other = said(Part(text="x")).model_copy(update={"message_id": "q2"})
    assert questions_of_agent(other, INPUT, extension_active=False)[0].key != asked.key


@pytest.mark.proves("map-ask-back-url", "mcp-elicit-secrets", "mcp-elicit-params")
def test_a_status_without_a_message_asks_for_text_except_to_authenticate() -> None:
    (asked,) = questions_of_agent(None, INPUT, extension_active=False)
    assert asked.text_field == TEXT_FIELD
    assert questions_of_agent(None, AUTH, extension_active=False) == ()


@pytest.mark.proves("map-ask-back-schema")
def test_the_bridges_own_questions_become_forms() -> None:
    (tool,), _ = tools_from(
        [
            {
                "name": "t",
                "inputSchema": {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]},
            }
        ]
    )
    parts = own_questions.arguments("t", tool, {}, [Problem("a", "missing")])
    (asked,) = ask(*parts, metadata={QUESTION: "arguments"})
    assert asked.own_key == "arguments"
    assert asked.params["requestedSchema"]["properties"]["a"]["type"] == "string"
    which = own_questions.ask_which_skill(UnclearCall(), {"t": tool})
    (asked,) = ask(*which, metadata={QUESTION: "which-skill"})
    assert (asked.own_key, asked.text_field) == ("which-skill", TEXT_FIELD)


@pytest.mark.proves("map-ask-back-schema")
@pytest.mark.parametrize(
    ("prop", "shown"),
    [
        ({"type": "string", "format": "email", "pattern": "x"}, {"type": "string", "format": "email"}),
        ({"type": "string", "format": "uuid"}, {"type": "string"}),
        ({"type": "string", "enum": ["a", "b"]}, ...),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, ...),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, ...),
        ({"type": "boolean", "default": True, "description": "d", "title": "t"}, ...),
        ({"type": "number", "minimum": 1, "multipleOf": 2}, {"type": "number", "minimum": 1}),
        ({"type": "integer", "enum": [1, 2]}, None),
        ({"type": "object"}, None),
        ({"type": "array", "items": {"type": "string"}}, None),
        ({"type": "array", "items": {"type": "object", "anyOf": [{"const": 1}]}}, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "string", "enum": [1]}, None),
        ({"type": "string", "oneOf": "x"}, {"type": "string", "oneOf": "x"}),
        ({"$ref": "#/x"}, None),
        ({}, None),
    ],
)
def test_a_schema_becomes_a_form_if_a_form_can_express_every_field(prop: Any, shown: Any) -> None:
    schema = {"type": "object", "properties": {"p": prop}, "required": ["p", "q"], "$defs": {}}
    form = elicitation_form_from(schema)
    if shown is None:
        assert form is None
        (asked,) = ask(Part(data={"schema": schema}))
        assert asked.text_field == TEXT_FIELD
    else:
        expected = prop if shown is ... else shown
        assert form == {"type": "object", "properties": {"p": expected}, "required": ["p"]}


@pytest.mark.proves("map-ask-back-schema")
@pytest.mark.parametrize("name", ["schema", "requestedSchema", None])
def test_a_schema_is_found_under_its_name_or_as_the_data_itself(name: str | None) -> None:
    schema: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
    (asked,) = ask(Part(text="Where?"), Part(data={name: schema} if name else schema))
    assert asked.params == {"mode": "form", "message": "Where?", "requestedSchema": schema}


@pytest.mark.proves("map-ask-back-url", "mcp-elicit-params")
@pytest.mark.parametrize(
    ("parts", "url"),
    [
        ((Part(text="Go"), Part(url="https://a/x")), "https://a/x"),
        ((Part(data={"url": "https://a/x", "docs": "https://b/"}),), "https://a/x"),
        ((Part(data={"login": {"href": "https://a/x"}}),), "https://a/x"),
        ((Part(data=["https://a/x"]),), "https://a/x"),
        ((Part(data={"mode": "url", "url": "https://a/x", "message": "Go"}),), "https://a/x"),
        ((Part(text="Open https://a/x now"),), None),
        ((Part(text="https://a/x"),), None),
        ((Part(data={"say": "open https://a/x"}),), None),
        ((Part(data={"one": "https://a/x", "two": "https://b/"}),), None),
        ((Part(url="https://a/x"), Part(url="https://b/")), None),
        ((Part(url="javascript:alert(1)"),), None),
        ((Part(url="https://"),), None),
        ((Part(data={"mode": "url", "url": "file:///x"}),), None),
        ((Part(data={"mode": "url", "url": "https://[x"}),), None),
    ],
)
def test_only_an_unambiguous_url_is_visited(parts: Any, url: str | None) -> None:
    asked = ask(*parts, state=AUTH)
    assert [one.params["url"] for one in asked] == ([] if url is None else [url])
    assert elicitation_modes_of(asked) == ({"url"} if asked else frozenset())


@pytest.mark.proves("map-ask-back-url", "mcp-elicit-params")
def test_an_extension_that_names_no_web_address_is_not_followed() -> None:
    block = {"k": {**URL, "url": "javascript:x"}}
    part = Part(data={}, metadata={BLOCK: block})
    assert questions_of_agent(said(part), AUTH, extension_active=True) == ()


@pytest.mark.proves("mcp-elicit-params")
def test_the_params_of_a_question_fit_the_protocol() -> None:
    for asked in (*ask(Part(text="?")), *ask(Part(data=FORM["requestedSchema"]))):
        ElicitRequestFormParams.model_validate(asked.params)
    (asked,) = ask(Part(url="https://a/x"), state=AUTH)
    ElicitRequestURLParams.model_validate(asked.params)


@pytest.mark.proves("map-ask-back")
def test_a_question_in_words_also_shows_urls_and_data() -> None:
    message = said(Part(text="Sign in"), Part(url="https://a/x"))
    assert question_words(message, AUTH) == "Sign in\nhttps://a/x"
    assert question_words(said(Part(data={"n": 1})), INPUT) == 'The agent asks for more information\n{"n": 1}'
    both = said(Part(text="Sign in"), Part(data={"url": "https://a/x"}))
    assert question_words(both, AUTH) == 'Sign in\n{"url": "https://a/x"}'
    assert question_words(said(Part(data={"key": "k"})), INPUT).endswith('{"key": "k"}')
    message, state = asked_by_us({"k": FORM})
    assert question_words(message, state) == message.parts[0].text
    assert question_words(None, AUTH) == "The agent asks you to authenticate"


def waiting_with(*parts: Part, message: Message | None = None) -> Task:
    artifacts = (
        Artifact(artifact_id="a0", parts=(Part(text="before"),)),
        Artifact(artifact_id="a1", parts=parts),
    )
    return Task(id="t", status=TaskStatus(state=INPUT, message=message), artifacts=artifacts)


@pytest.mark.proves("map-ask-back")
@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(text="Which city?"), "Which city?"),
        (Part(data={"id": "i", "value": "Which city?"}), "Which city?"),
        (Part(data={"id": "i", "value": ["a", 1]}), 'The agent asks for more information\n["a", 1]'),
        (Part(data={"id": "i"}), 'The agent asks for more information\n{"id": "i"}'),
        (Part(text="x" * 5000), "x" * MAX_QUESTION_CHARACTERS + " ..."),
        (Part(data=["x" * 5000]), '["' + "x" * (MAX_QUESTION_CHARACTERS - 2) + " ..."),
    ],
)
def test_a_status_without_a_message_takes_its_question_from_the_last_artifact(part: Part, words: str) -> None:
    status = status_with_question(waiting_with(part))
    assert question_words(status.message, status.state) == words


@pytest.mark.proves("map-ask-back")
def test_a_status_with_a_message_stays_as_it_is() -> None:
    task = waiting_with(Part(text="a draft"), message=said(Part(text="Send it?")))
    assert status_with_question(task) == task.status
    done = task.model_copy(update={"status": TaskStatus(state=TaskState.COMPLETED)})
    assert status_with_question(done) == done.status


RESULTS: list[Any] = [
    {"action": "accept", "content": {"name": "x", "age": 3}},
    {"action": "accept", "content": {"name": "decline"}},
    {"action": "decline"},
    {"action": "cancel"},
]


@pytest.mark.proves("map-ask-back-once")
@pytest.mark.parametrize("result", RESULTS)
def test_an_answer_reaches_the_server_behind_another_bridge_unchanged(result: Any) -> None:
    asked = questions_of_agent(*asked_by_us({"k": FORM}), extension_active=True)
    message = answer_message(asked, {"k": result}, WAITING)
    assert isinstance(message, Message)
    assert (message.task_id, message.context_id, message.role) == ("t", "c", Role.USER)
    open_ones = [
        elicitation_from("k", {**FORM, "requestedSchema": {"type": "object", "properties": {"name": {}}}})
    ]
    assert answers_from(message, open_ones, fill_defaults=False).given == {"k": result}


@pytest.mark.proves("map-ask-back")
def test_an_answer_that_looks_like_a_refusal_is_not_a_refusal() -> None:
    form = {"type": "object", "properties": {"action": {"type": "string"}}}
    params: Any = {"k": {"mode": "form", "message": "m", "requestedSchema": form}}
    result: Any = {"action": "accept", "content": {"action": "decline"}}
    asked = questions_of_agent(*asked_by_us(params), extension_active=True)
    message = answer_message(asked, {"k": result}, WAITING)
    assert isinstance(message, Message)
    assert answers_from(message, [elicitation_from("k", params["k"])], fill_defaults=False).given == {
        "k": result
    }


@pytest.mark.proves("map-ask-back")
@pytest.mark.parametrize("second", [{"action": "accept"}, {"action": "decline"}])
@pytest.mark.parametrize("first", RESULTS)
def test_each_of_several_answers_reaches_the_server_behind_another_bridge(first: Any, second: Any) -> None:
    params = {"a": FORM, "b": URL}
    form = {**FORM, "requestedSchema": {"type": "object", "properties": {"name": {}}}}
    asked = questions_of_agent(*asked_by_us(params), extension_active=True)
    message = answer_message(asked, {"a": first, "b": second}, WAITING)
    assert isinstance(message, Message)
    open_ones = [elicitation_from("a", form), elicitation_from("b", URL)]
    assert answers_from(message, open_ones, fill_defaults=False).given == {"a": first, "b": second}
    only = answer_message(asked, {"b": second}, WAITING)
    assert isinstance(only, Message)
    assert answers_from(only, open_ones, fill_defaults=False).given == {"b": second}


@pytest.mark.proves("map-ask-back")
@pytest.mark.parametrize(("given", "words"), [("Rome", "Rome"), ("", ""), (3, "3")])
def test_an_answer_in_words_is_text(given: Any, words: str) -> None:
    asked = ask(Part(text="Which city?"))
    accepted = {"action": "accept", "content": {TEXT_FIELD: given}}
    answer = answer_message(asked, {asked[0].key: accepted}, WAITING)
    assert isinstance(answer, Message)
    assert (answer.parts, answer.metadata) == ((Part(text=words),), {ANSWER: "accept"})


@pytest.mark.proves("map-ask-back")
@pytest.mark.parametrize("content", [{}, {"city": "Rome"}, {TEXT_FIELD: None}, {TEXT_FIELD: True}, None])
def test_an_accepted_form_without_the_requested_text_is_an_error(content: Any) -> None:
    asked = ask(Part(text="Which city?"))
    with pytest.raises(UnfitAnswerError, match="no text in the field 'answer'"):
        answer_message(asked, {asked[0].key: {"action": "accept", "content": content}}, WAITING)


@pytest.mark.proves("map-ask-back-no", "mcp-elicit-outcome")
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize(
    ("part", "state"),
    [
        (Part(text="Which city?"), INPUT),
        (Part(data={"schema": FORM["requestedSchema"]}), INPUT),
        (Part(data={"key": "k", "message": "Sure?", "mode": "confirm"}), INPUT),
        (Part(url="https://a/x"), AUTH),
        (Part(data={"key": "k", "mode": "url", "url": "https://a/x"}), AUTH),
    ],
)
def test_a_refusal_that_an_agent_has_not_declared_makes_no_message(
    part: Part, state: TaskState, action: str
) -> None:
    asked = ask(part, state=state)
    told = answer_message(asked, {asked[0].key: {"action": action, "content": {"x": 1}}}, WAITING)
    assert told == UntoldRefusal(ElicitAction(action))


@pytest.mark.proves("map-ask-back-no")
def test_a_decline_fills_in_a_form_that_can_refuse_and_a_cancel_never_does() -> None:
    form = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    asked = ask(Part(text="Book it?"), Part(data={"schema": form}))
    declined = answer_message(asked, {asked[0].key: {"action": "decline"}}, WAITING)
    assert isinstance(declined, Message)
    assert [part.data for part in declined.parts] == [{"approved": False}]
    canceled = answer_message(asked, {asked[0].key: {"action": "cancel"}}, WAITING)
    assert canceled == UntoldRefusal(ElicitAction.CANCEL)


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("accept", "decline", ElicitAction.DECLINE),
        ("decline", "accept", None),
        ("decline", "cancel", ElicitAction.CANCEL),
        ("cancel", "decline", ElicitAction.CANCEL),
    ],
)
def test_one_refusal_that_cannot_be_sent_refuses_all_questions(
    first: str, second: str, told: ElicitAction | None
) -> None:
    yes_or_no = {"type": "object", "properties": {"approved": {"type": "boolean"}}}
    listed: list[Any] = [{"key": "a", "schema": yes_or_no}, {"key": "b", "schema": FORM["requestedSchema"]}]
    asked = ask(Part(data={"questions": listed}))
    answers: Any = {"a": {"action": first}, "b": {"action": second}}
    answer = answer_message(asked, answers, WAITING)
    assert answer == UntoldRefusal(told) if told else isinstance(answer, Message)


@pytest.mark.proves("map-ask-back-no")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refusal_to_an_agent_of_a_bridge_holds_no_text(action: str) -> None:
    asked = questions_of_agent(*asked_by_us({"k": FORM}), extension_active=True)
    answer = answer_message(asked, {"k": {"action": action}}, WAITING)
    assert isinstance(answer, Message)
    assert [part.data for part in answer.parts] == [{"action": action}]
    assert answer.metadata == {ANSWER: action, QUESTION: "k"}


@pytest.mark.proves("map-ask-back-url")
def test_an_agent_without_the_extension_gets_no_message_about_a_visited_url() -> None:
    asked = ask(Part(url="https://a/x"), state=AUTH)
    assert answer_message(asked, {asked[0].key: {"action": "accept"}}, WAITING) is None


@pytest.mark.proves("map-ask-back-url")
def test_an_agent_of_a_bridge_gets_a_message_when_a_url_was_visited() -> None:
    asked = questions_of_agent(*asked_by_us({"k": URL}), extension_active=True)
    message = answer_message(asked, {"k": {"action": "accept"}}, WAITING)
    assert isinstance(message, Message)
    assert answers_from(message, [elicitation_from("k", URL)]).given == {"k": {"action": "accept"}}


@pytest.mark.proves("map-ask-back")
@pytest.mark.parametrize(
    "responses", [{}, {"other": {"action": "accept"}}, {"k": 7}, {"k": {"action": "maybe"}}]
)
def test_responses_that_answer_no_question_make_no_message(responses: Any) -> None:
    asked = questions_of_agent(*asked_by_us({"k": FORM}), extension_active=True)
    assert answer_message(asked, responses, WAITING) is None


@pytest.mark.proves("map-ask-back-once")
def test_the_same_answer_to_the_same_question_has_the_same_message_id() -> None:
    answer: Any = {"a": 1, "b": 2}
    assert message_id_of("s", answer) == message_id_of("s", {"b": 2, "a": 1})
    assert len({message_id_of("s", answer), message_id_of("s2", answer), message_id_of("s", {"a": 1})}) == 3


@pytest.mark.proves("map-ask-back-once")
def test_the_same_answer_to_another_question_or_task_has_another_message_id() -> None:
    def message_id(task_id: str, asked_by: str) -> str:
        message = said(*parts_of_questions([elicitation_from("k", FORM)], None))
        status = TaskStatus(state=INPUT, message=message.model_copy(update={"message_id": asked_by}))
        asked = with_lasting_keys(questions_of_agent(status.message, INPUT, extension_active=True), status)
        answer = answer_message(asked, {asked[0].key: RESULTS[0]}, AskingTask(task_id, task_id, "c"))
        assert isinstance(answer, Message)
        assert (answer.metadata or {})[QUESTION] == "k"
        return answer.message_id

    assert message_id("t1", "q1") == message_id("t1", "q1")
    assert len({message_id("t1", "q1"), message_id("t1", "q2"), message_id("t2", "q1")}) == 3


def lasting(message_id: str, occasions: dict[str, str] | None, *keys: str) -> dict[str | None, str]:
    """The lasting keys of a server's questions, by the server's own keys."""
    asked = [elicitation_from(key, FORM) for key in keys]
    message = said(*parts_of_questions(asked, None, occasions)).model_copy(update={"message_id": message_id})
    status = TaskStatus(state=state_of_questions(asked), message=message)
    found = with_lasting_keys(questions_of_agent(message, status.state, extension_active=True), status)
    return {one.own_key: one.key for one in found}


@pytest.mark.proves("map-ask-back-once", "tasks-keys")
def test_an_open_question_keeps_its_key_and_a_later_question_never_gets_it() -> None:
    both = lasting("m1", {"a": "1", "b": "2"}, "a", "b")
    assert len(set(both.values())) == 2
    assert lasting("m2", {"b": "2"}, "b") == {"b": both["b"]}
    assert lasting("m3", {"b": "3"}, "b")["b"] not in both.values()


@pytest.mark.proves("map-ask-back-once")
def test_questions_without_occasions_are_new_with_each_new_message() -> None:
    assert lasting("m1", None, "a", "b") == lasting("m1", None, "a", "b")
    assert not set(lasting("m1", None, "a", "b").values()) & set(lasting("m2", None, "a", "b").values())


@pytest.mark.proves("map-ask-back-schema")
def test_equal_forms_share_one_validator() -> None:
    forms = [elicitation_from(key, deepcopy(FORM)).form for key in ("one", "two")]
    assert forms[0] is not None
    assert forms[1] is not None
    assert forms[0].validator is forms[1].validator
