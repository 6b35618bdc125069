"""A server's questions as a question of the task, and every way in which a client may answer."""

from __future__ import annotations

from typing import Any, Final

import pytest

from bridge.a2a.model.errors import INVALID_PARAMS, A2AError
from bridge.a2a.model.objects import Message, TaskState
from bridge.errors import PeerError
from bridge.translate.arguments import Problem
from bridge.translate.elicitation import (
    MAX_QUESTION_BYTES,
    Elicitation,
    answers_from,
    elicitation_from,
    fitting_answers,
    named_answers,
    parts_of_questions,
    question_metadata,
    required_urls,
    state_of_questions,
)
from bridge.translate.extensions.bridge import ANSWER, BLOCK, QUESTION

COLORS: Final = ["red", "green", "blue"]
PERSON: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Full name", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "color": {"type": "string", "enum": COLORS, "default": "green"},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name"],
}


def form(key: str = "who", message: str = "Who are you?", **schema: Any) -> Elicitation:
    """A form: PERSON, or `field="string"` for each required field."""
    fields = {name: {"type": kind} for name, kind in schema.items()}
    asked = {"type": "object", "properties": fields, "required": [*fields]} if fields else PERSON
    return elicitation_from(key, {"mode": "form", "message": message, "requestedSchema": asked})


def visit(key: str = "connect") -> Elicitation:
    """A URL."""
    url = "https://login.test/connect?e=1"
    return elicitation_from(
        key, {"mode": "url", "message": "Connect", "url": url, "elicitationId": f"{key}-id"}
    )


def said(*parts: Any, **metadata: Any) -> Message:
    """A message: each part is its text or its data."""
    made = [{"text": part} if isinstance(part, str) else {"data": part} for part in parts]
    named = {{"question": QUESTION, "answer": ANSWER}[name]: value for name, value in metadata.items()}
    body = {"messageId": "m", "role": "ROLE_USER", "parts": made or [{"text": "ok"}], "metadata": named}
    return Message.model_validate(body)


def given(message: Message, *questions: Elicitation, **options: bool) -> dict[str, Any]:
    """The answers in a message, which must have no problems."""
    answers = answers_from(message, questions, **options)
    assert answers.problems == {}, answers.problems
    return dict(answers.given)


def content(message: Message, question: Elicitation, **options: bool) -> Any:
    """The content with which a message accepts a form."""
    (answer,) = given(message, question, **options).values()
    assert answer["action"] == "accept"
    return answer["content"]


def at_fault(message: Message, *questions: Elicitation) -> dict[str, list[str]]:
    """The properties with problems in a message, by question."""
    answers = answers_from(message, questions)
    return {key: [problem.name for problem in problems] for key, problems in answers.problems.items()}


# What is asked


@pytest.mark.proves("map-elicitation-form")
def test_a_form_is_a_question_with_its_schema() -> None:
    question = form()
    assert (question.key, question.message) == ("who", "Who are you?")
    assert question.form is not None
    assert question.form.input_schema == PERSON


@pytest.mark.proves("map-elicitation-form", "mcp-elicit-default-form")
def test_a_question_without_a_mode_is_a_form_and_without_a_message_gets_one() -> None:
    question = elicitation_from("k", {"requestedSchema": {"type": "object"}})
    assert question.form is not None
    assert "more information" in question.message
    assert elicitation_from("k", {"message": ""}).message == question.message


@pytest.mark.proves("map-elicitation-url")
def test_a_url_is_a_question_without_a_form() -> None:
    question = visit()
    assert question.form is None
    assert question.url == "https://login.test/connect?e=1"


@pytest.mark.proves("map-elicitation-url")
@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        "login.test",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https:login",
        "ftp://x.test/",
    ],
    ids=str,
)
def test_a_url_that_is_not_a_web_address_is_not_passed_on(url: Any) -> None:
    with pytest.raises(PeerError, match="not a web address"):
        elicitation_from("k", {"mode": "url", "message": "Go", "url": url})


@pytest.mark.proves("map-elicitation-url")
@pytest.mark.parametrize("url", ["https://[::1", "http://[x]/"])
def test_a_url_that_cannot_be_parsed_is_not_passed_on_either(url: str) -> None:
    with pytest.raises(PeerError, match="not a web address"):
        elicitation_from("k", {"mode": "url", "message": "Go", "url": url})


@pytest.mark.proves("map-elicitation-form")
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"mode": "dance"}, "unknown mode: 'dance'"),
        ({"mode": ["form"]}, "unknown mode"),
        ({"requestedSchema": "text"}, "its requestedSchema is not a JSON object"),
        ({"requestedSchema": {"type": "nonsense"}}, "not valid"),
        ({"requestedSchema": {"properties": {"a": {"$ref": "https://x.test/s"}}}}, "nothing is fetched"),
        ({"message": "x" * MAX_QUESTION_BYTES}, "larger than"),
    ],
    ids=["mode", "mode's type", "no schema", "bad schema", "far schema", "size"],
)
def test_a_question_that_cannot_be_passed_on_says_why(params: Any, words: str) -> None:
    with pytest.raises(PeerError, match=words):
        elicitation_from("k", params)


@pytest.mark.proves("map-elicitation-form", "map-elicitation-url")
def test_a_url_needs_authorization_whatever_comes_with_it() -> None:
    assert state_of_questions([form()]) is TaskState.INPUT_REQUIRED
    assert state_of_questions([form(), form("other")]) is TaskState.INPUT_REQUIRED
    assert state_of_questions([visit()]) is TaskState.AUTH_REQUIRED
    assert state_of_questions([form(), visit()]) is TaskState.AUTH_REQUIRED


@pytest.mark.proves("map-elicitation-form")
def test_a_form_is_asked_in_words_and_as_data() -> None:
    question = form()
    words, data = parts_of_questions([question])
    assert (words.text or "").splitlines() == [
        "Who are you?",
        "- name (string, required) Full name",
        "- age (integer)",
        '- color (one of "red", "green", "blue")',
        '- tags (array of one of "a", "b")',
    ]
    assert data.data == {"key": "who", "message": "Who are you?", "mode": "form", "schema": PERSON}
    assert data.media_type == "application/json"
    assert data.metadata == {BLOCK: {"who": question.params}}
    assert question_metadata([question]) == {QUESTION: "who"}


@pytest.mark.proves("map-elicitation-form")
def test_the_faults_are_named_in_words_and_as_data() -> None:
    words, data = parts_of_questions(
        [form()], {"who": (Problem("name", "too short"), Problem("", "too little"))}
    )
    lines = (words.text or "").splitlines()
    assert lines[0] == "That answer does not fit the form. Who are you?"
    assert lines[1] == "- name (string, required) Full name [too short]"
    assert lines[-1] == "- too little"
    assert isinstance(data.data, dict)
    assert data.data["errors"] == [
        {"property": "name", "message": "too short"},
        {"property": "", "message": "too little"},
    ]


@pytest.mark.proves("map-elicitation-url", "mcp-elicit-url-shown")
def test_a_url_is_asked_with_its_host_in_words_and_whole_as_data() -> None:
    words, data = parts_of_questions([visit()])
    assert (words.text or "").startswith("Connect\nOpen this address of login.test, ")
    assert (words.text or "").endswith("https://login.test/connect?e=1")
    assert data.data == {
        "key": "connect",
        "message": "Connect",
        "mode": "url",
        "url": "https://login.test/connect?e=1",
        "elicitationId": "connect-id",
    }


@pytest.mark.proves("map-elicitation-both")
def test_several_questions_are_one_message_with_every_key() -> None:
    asked = [form("name", "Your name?", name="string"), visit()]
    words, data = parts_of_questions(asked, {"name": (Problem("name", "missing"),)})
    assert (words.text or "").split("\n\n")[0].startswith("That answer does not fit the form. Your name?")
    assert (words.text or "").split("\n\n")[1].startswith("Connect")
    assert isinstance(data.data, dict)
    questions: Any = data.data["questions"]
    assert [(one["key"], one["mode"]) for one in questions] == [("name", "form"), ("connect", "url")]
    assert "errors" in questions[0]
    assert data.metadata == {BLOCK: {one.key: one.params for one in asked}}
    assert question_metadata(asked) == {}


# Answers to one form


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", True), ("Yes", True), ("true", True), ("no", False), ("NO", False), ("false", False)],
)
def test_a_word_for_a_boolean_fills_the_field_and_never_declines(text: str, value: bool) -> None:
    assert given(said(text), form(sure="boolean")) == {
        "who": {"action": "accept", "content": {"sure": value}}
    }


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize("text", ["no", "cancel", "decline", "null", "I refuse", " spaced "])
def test_text_for_a_form_of_one_string_is_that_string(text: str) -> None:
    assert content(said(text), form(name="string")) == {"name": text}


CONTEXT: Final = ("For context: what another agent did", "[planner] said: How many seats, 2 or 3?")
"""As google-adk 2.13.0's RemoteA2aAgent sends it beside the user's answer."""
CHOICE: Final = {
    "type": "string",
    "oneOf": [{"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue"}],
}
OPTIONAL: Final = {"anyOf": [{"type": "string", "maxLength": 8}, {"type": "null"}]}
BESIDE_OTHERS: Final[list[tuple[Any, tuple[str, ...], Any]]] = [
    ({"type": "integer"}, (*CONTEXT, "5"), 5),
    ({"type": "integer"}, ("5", *CONTEXT), 5),
    ({"type": "integer"}, (*CONTEXT, "2", "3"), None),
    ({"type": "integer"}, (*CONTEXT, "2", "2"), None),
    ({"type": "integer"}, CONTEXT, None),
    ({"type": "integer", "maximum": 4}, (*CONTEXT, "5"), None),
    ({"type": "integer", "maximum": 4}, (*CONTEXT, "5", "4"), 4),
    ({"type": "boolean"}, (*CONTEXT, "yes"), True),
    ({"type": "boolean"}, (*CONTEXT, "yes", "no"), None),
    ({"type": "string", "enum": ["red", "blue"]}, (*CONTEXT, "blue"), "blue"),
    (CHOICE, (*CONTEXT, "blue"), "blue"),
    ({"type": "string", "format": "email"}, (*CONTEXT, "ada@example.com"), "ada@example.com"),
    ({"type": "string", "pattern": "^[A-Z]{3}$"}, (*CONTEXT, "LIS"), "LIS"),
    ({"type": "string", "pattern": "^b"}, ("blue", "book"), "blue\nbook"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, (*CONTEXT, '["a"]'), ["a"]),
    ({"type": "string"}, ("Lisbon", "by train"), "Lisbon\nby train"),
    ({"type": "string", "maxLength": 8}, (*CONTEXT, "Lisbon"), None),
    (OPTIONAL, (*CONTEXT, "Lisbon"), None),
    ({}, ("Lisbon", "5"), "Lisbon\n5"),
]


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize(("field", "texts", "value"), BESIDE_OTHERS)
def test_the_only_text_that_fits_the_field_is_the_answer_if_all_texts_together_do_not_fit(
    field: Any, texts: tuple[str, ...], value: Any
) -> None:
    schema = {"type": "object", "properties": {"it": field}, "required": ["it"]}
    asked = elicitation_from("k", {"message": "Which?", "requestedSchema": schema})
    if value is None:
        assert at_fault(said(*texts), asked) == {"k": ["it"]}
    else:
        assert content(said(*texts), asked) == {"it": value}


@pytest.mark.proves("a2a-held", "a2a-in-context")
def test_a_message_that_names_no_question_answers_with_all_its_texts_or_not_at_all() -> None:
    asked = [form("seats", number="integer")]
    seats = {"seats": {"action": "accept", "content": {"number": 5}}}
    assert fitting_answers(said("5"), asked) == seats
    assert fitting_answers(said(*CONTEXT, "5"), asked) == {}
    assert named_answers(said(*CONTEXT, "5", question="seats"), asked) == seats


@pytest.mark.proves("map-refuse")
@pytest.mark.parametrize("text", ["decline", "cancel", "maybe"])
def test_words_that_do_not_fit_are_asked_again_and_never_taken_for_a_refusal(text: str) -> None:
    assert at_fault(said(text), form(sure="boolean")) == {"who": ["sure"]}


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize(
    "answer",
    [
        {"name": "Ada", "age": 36},
        {"name": "Ada", "age": 36.0},
        {"action": "accept", "content": {"name": "Ada", "age": 36}},
        {"arguments": {"name": "Ada", "age": 36}},
        '{"name": "Ada", "age": 36}',
        "name=Ada age=36",
        "name='Ada' age=36",
        '{"action": "accept", "content": {"name": "Ada", "age": 36}}',
    ],
    ids=str,
)
def test_the_fields_of_a_form_are_filled_in_by_data_or_json_or_pairs(answer: Any) -> None:
    found = content(said(answer), form())
    assert found == {"name": "Ada", "age": 36, "color": "green"}
    assert type(found["age"]) is int


@pytest.mark.proves("map-answers")
def test_defaults_are_filled_unless_the_client_knows_the_schema() -> None:
    assert content(said({"name": "Ada"}), form()) == {"name": "Ada", "color": "green"}
    assert content(said({"name": "Ada"}), form(), fill_defaults=False) == {"name": "Ada"}
    assert content(said({"name": "Ada", "color": "red"}), form()) == {"name": "Ada", "color": "red"}


EMPTY: Final = elicitation_from("k", {"message": "Delete all of it?"})
OPTIONAL: Final = elicitation_from(
    "k",
    {
        "message": "How?",
        "requestedSchema": {
            "type": "object",
            "properties": {"all": {"type": "boolean", "default": True}, "why": {"type": "string"}},
        },
    },
)


@pytest.mark.proves("map-answers", "map-refuse")
@pytest.mark.parametrize(
    ("message", "action"),
    [
        (said("yes"), "accept"),
        (said("Go ahead."), "accept"),
        (said({}), "accept"),
        (said(True), "accept"),
        (said({"action": "accept"}), "accept"),
        (said({"action": "accept", "content": {}}), "accept"),
        (said({"confirm": True}), "accept"),
        (said("done", answer="accept"), "accept"),
        (said("no"), "decline"),
        (said("No, never do that"), "decline"),
        (said(False), "decline"),
        (said({"confirm": False}), "decline"),
        (said("no", answer="accept"), "decline"),
        (said({"action": "cancel"}), "cancel"),
    ],
)
def test_a_form_without_fields_takes_a_clear_yes_or_a_clear_no(message: Message, action: str) -> None:
    assert given(message, EMPTY)["k"]["action"] == action


@pytest.mark.proves("map-answers", "map-refuse")
@pytest.mark.parametrize("message", [said("what is that?"), said("yes?"), said(5), said({"approved": False})])
def test_other_words_do_not_accept_a_form_without_fields(message: Message) -> None:
    answers = answers_from(message, [EMPTY])
    assert (dict(answers.given), [*answers.problems]) == ({}, ["k"])


@pytest.mark.proves("map-answers", "map-refuse")
@pytest.mark.parametrize("message", [said("no"), said("What?"), said(False), said({"confirm": False})])
def test_a_message_that_fills_in_nothing_does_not_accept_the_defaults(message: Message) -> None:
    answers = answers_from(message, [OPTIONAL])
    assert (dict(answers.given), [*answers.problems]) == ({}, ["k"])


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize(
    "message", [said({}), said({"action": "accept"}), said({"action": "accept", "content": {}})]
)
def test_an_explicitly_empty_answer_accepts_the_defaults(message: Message) -> None:
    assert content(message, OPTIONAL) == {"all": True}


@pytest.mark.proves("map-answers", "map-refuse")
@pytest.mark.parametrize("message", [said("no"), said("I do not want to"), said(False), said("Never!")])
def test_a_refusal_in_words_is_not_a_visit(message: Message) -> None:
    assert given(message, visit()) == {"connect": {"action": "decline"}}


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"name": "A"}, ["name"]),
        ({}, ["name"]),
        ({"name": "Ada", "age": -1}, ["age"]),
        ({"name": "Ada", "age": 1.5}, ["age"]),
        ({"age": "x", "color": "pink"}, ["name", "age", "color"]),
        ({"name": "Ada", "tags": ["a", "b", "a"]}, ["tags"]),
        ("Ada", ["name"]),
    ],
    ids=str,
)
def test_the_fields_that_do_not_fit_are_named(answer: Any, names: list[str]) -> None:
    assert at_fault(said(answer), form()) == {"who": names}


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize("tags", [["a"], '["a"]'])
def test_a_choice_of_several_is_a_list_also_as_text(tags: Any) -> None:
    assert content(said({"name": "Ada", "tags": tags}), form())["tags"] == ["a"]


# Refusals


@pytest.mark.proves("map-refuse", "map-answers")
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize(
    "message",
    [
        lambda action: said("no", answer=action),
        lambda action: said({"name": "Ada"}, answer=action),
        lambda action: said({"action": action}),
        lambda action: said({"action": action, "content": {}}),
        lambda action: said({"action": action, "content": None}),
        lambda action: said({"action": action, "content": {"name": "Ada"}}),
    ],
    ids=["metadata", "metadata wins", "action", "empty content", "no content", "content"],
)
def test_a_form_is_refused_by_metadata_or_by_the_shape_of_a_result(message: Any, action: str) -> None:
    assert given(message(action), form()) == {"who": {"action": action}}


@pytest.mark.proves("map-refuse")
def test_action_is_a_field_if_the_form_has_a_field_of_that_name() -> None:
    question = form(action="string")
    assert content(said({"action": "decline"}), question) == {"action": "decline"}
    assert given(said({"action": "go"}, answer="decline"), question) == {"who": {"action": "decline"}}
    both = form(action="string", content="string")
    assert content(said({"action": "accept", "content": "x"}), both) == {"action": "accept", "content": "x"}


@pytest.mark.proves("map-refuse")
@pytest.mark.parametrize("answer", ["maybe", 7, None, ["decline"]])
def test_an_unknown_action_in_metadata_refuses_nothing(answer: Any) -> None:
    assert content(said({"name": "Ada"}, answer=answer), form())["name"] == "Ada"


@pytest.mark.proves("map-refuse")
def test_an_unknown_action_is_not_a_field_either() -> None:
    assert at_fault(said({"action": "run"}), form()) == {"who": ["name"]}


# URLs


@pytest.mark.proves("map-elicitation-url", "map-answers")
@pytest.mark.parametrize(
    "message", [said("done"), said({}), said({"action": "accept"}), said(answer="accept")]
)
def test_a_message_says_that_a_url_was_visited(message: Message) -> None:
    assert given(message, visit()) == {"connect": {"action": "accept"}}


@pytest.mark.proves("map-refuse")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_url_is_refused_like_a_form(action: str) -> None:
    assert given(said("no", answer=action), visit()) == {"connect": {"action": action}}
    assert given(said({"action": action}), visit()) == {"connect": {"action": action}}


# Several questions


FIRST, SECOND = form("first", name="string"), form("second", age="integer")


@pytest.mark.proves("map-elicitation-both", "map-answers")
def test_several_forms_are_answered_by_key_together_or_one_by_one() -> None:
    both = given(said({"first": {"name": "Ada"}, "second": {"age": 36}}), FIRST, SECOND)
    assert both == {
        "first": {"action": "accept", "content": {"name": "Ada"}},
        "second": {"action": "accept", "content": {"age": 36}},
    }
    assert given(said({"second": {"age": 36}}), FIRST, SECOND) == {"second": both["second"]}
    assert given(said({"first": {"action": "decline"}}), FIRST, SECOND) == {"first": {"action": "decline"}}
    assert at_fault(said({"first": {}, "second": {"age": "x"}}), FIRST, SECOND) == {
        "first": ["name"],
        "second": ["age"],
    }


@pytest.mark.proves("map-answers")
def test_metadata_names_the_question_that_a_message_answers() -> None:
    assert content(said("Ada", question="first"), FIRST) == {"name": "Ada"}
    assert given(said("36", question="second"), FIRST, SECOND) == {
        "second": {"action": "accept", "content": {"age": 36}}
    }
    assert given(said("no", question="first", answer="decline"), FIRST, SECOND) == {
        "first": {"action": "decline"}
    }


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize("name", ["third", "", 7, ["first"]])
def test_a_question_that_is_not_open_cannot_be_answered(name: Any) -> None:
    with pytest.raises(A2AError, match="names no open question; open: first, second") as refused:
        answers_from(said("Ada", question=name), [FIRST, SECOND])
    assert refused.value.kind is INVALID_PARAMS


@pytest.mark.proves("map-answers", "map-elicitation-both")
@pytest.mark.parametrize(
    "answer", ["Ada", {"name": "Ada", "age": 36}, {"first": {"name": "Ada"}, "third": {}}, "yes"]
)
def test_which_of_several_forms_is_meant_is_never_guessed(answer: Any) -> None:
    answers = answers_from(said(answer), [FIRST, SECOND])
    assert answers.given == {}
    assert {key: problem.name for key, (problem,) in answers.problems.items()} == {"first": "", "second": ""}
    assert "several forms are open" in answers.problems["first"][0].message


@pytest.mark.proves("map-refuse", "map-elicitation-both")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refusal_that_names_no_question_is_for_all_of_them(action: str) -> None:
    refused = {"first": {"action": action}, "second": {"action": action}}
    assert given(said("no", answer=action), FIRST, SECOND) == refused
    assert given(said({"action": action}), FIRST, SECOND) == refused


@pytest.mark.proves("map-elicitation-both")
def test_a_form_and_a_url_are_answered_by_one_message() -> None:
    assert given(said("Ada"), FIRST, visit()) == {
        "first": {"action": "accept", "content": {"name": "Ada"}},
        "connect": {"action": "accept"},
    }
    assert given(said({"connect": {}}), FIRST, visit()) == {"connect": {"action": "accept"}}
    wrong = answers_from(said({"first": {"name": 7}, "connect": {}}), [FIRST, visit()])
    assert wrong.given == {"connect": {"action": "accept"}}
    assert list(wrong.problems) == ["first"]


# URLs that an error names


@pytest.mark.proves("map-elicitation-url")
def test_the_urls_of_an_error_are_known_by_their_ids() -> None:
    one = {"mode": "url", "message": "Connect", "url": "https://a.test/", "elicitationId": "e1"}
    assert required_urls({"elicitations": [one, {"url": "https://b.test/"}, "odd"]}) == {
        "e1": one,
        "url-2": {"url": "https://b.test/"},
    }


@pytest.mark.proves("map-elicitation-url")
@pytest.mark.parametrize(
    "data", [None, 7, [], {}, {"elicitations": None}, {"elicitations": {"a": 1}}], ids=str
)
def test_an_error_that_names_no_url_has_none(data: Any) -> None:
    assert required_urls(data) == {}


@pytest.mark.proves("map-answers")
@pytest.mark.parametrize(
    ("format_name", "right", "wrong"),
    [
        ("email", "ada@example.com", "ada at example"),
        ("uri", "https://example.com/a", "ada@example.com"),
        ("uri", "urn:isbn:1", "https://[broken"),
        ("date", "2026-01-31", "2026-02-31"),
        ("date", "2026-12-01", "20261201"),
        ("date-time", "2026-01-31T12:00:00Z", "2026-01-31 noon"),
        ("unknown", "anything", None),
    ],
)
def test_the_formats_that_a_form_may_ask_for_are_checked(
    format_name: str, right: str, wrong: str | None
) -> None:
    asked = {"type": "object", "properties": {"field": {"type": "string", "format": format_name}}}
    question = elicitation_from("k", {"message": "m", "requestedSchema": asked})
    assert answers_from(said({"field": right}), [question]).given == {
        "k": {"action": "accept", "content": {"field": right}}
    }
    if wrong is not None:
        assert answers_from(said({"field": wrong}), [question]).given == {}


@pytest.mark.proves("map-answers")
def test_defaults_keep_the_order_of_the_form() -> None:
    given = answers_from(said({"tags": ["a"], "name": "Ada"}), [form()]).given["who"]["content"]
    assert isinstance(given, dict)
    assert list(given) == ["name", "color", "tags"]


@pytest.mark.proves("map-answers")
def test_an_answer_may_name_the_key_of_the_only_question_even_if_a_field_has_that_name() -> None:
    question = form("second", second="string")
    given = answers_from(said({"second": {"second": "y"}}), [question]).given
    assert given == {"second": {"action": "accept", "content": {"second": "y"}}}


def choosing(**fields: Any) -> Elicitation:
    """A form with these fields, all of them required."""
    asked = {"type": "object", "properties": fields, "required": [*fields]}
    return elicitation_from("who", {"mode": "form", "message": "Which?", "requestedSchema": asked})


TITLED: Final = [
    {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
    {"type": "string", "anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
    {"type": "string", "enum": ["#f00", "#0f0"], "enumNames": ["Red", "Green"]},
]


@pytest.mark.proves("map-elicitation-form")
@pytest.mark.parametrize("field", TITLED)
def test_titled_choices_are_shown_by_title_and_answered_by_title_or_value(field: Any) -> None:
    question = choosing(color=field)
    assert 'color (one of "#f00" (Red), "#0f0" (Green), required)' in str(
        parts_of_questions([question])[0].text
    )
    for answer in ("Red", " red ", "#f00", {"color": "Red"}, {"color": "#f00"}):
        assert answers_from(said(answer), [question]).given == {
            "who": {"action": "accept", "content": {"color": "#f00"}}
        }
    assert answers_from(said({"color": "Blue"}), [question]).problems


@pytest.mark.proves("map-elicitation-form")
def test_several_titled_choices_are_answered_by_their_titles() -> None:
    items = {"anyOf": TITLED[0]["oneOf"]}
    question = choosing(colors={"type": "array", "items": items})
    given = answers_from(said({"colors": ["Green", "#f00"]}), [question]).given
    assert given == {"who": {"action": "accept", "content": {"colors": ["#0f0", "#f00"]}}}


@pytest.mark.proves("map-elicitation-form")
def test_a_value_counts_before_a_title_and_a_shared_title_names_no_choice() -> None:
    choices = [{"const": "a", "title": "b"}, {"const": "b", "title": "Same"}, {"const": "c", "title": "Same"}]
    question = choosing(x={"type": "string", "oneOf": choices})
    assert answers_from(said({"x": "b"}), [question]).given["who"]["content"] == {"x": "b"}
    assert answers_from(said({"x": "Same"}), [question]).problems
