"""The questions of a task as forms. Pure.

A question is read as for an MCP host, so that a person here gets the same question as a host.
"""

from __future__ import annotations

from pydantic import JsonValue

from bridge.a2a.model.objects import Task
from bridge.console.forms import fields_of
from bridge.console.operations import WAITING
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import web_link
from bridge.translate.agent_questions import (
    AgentQuestion,
    question_words,
    questions_mark,
    questions_of_agent,
    with_lasting_keys,
)


def asked_of(task: Task, *, may_answer: bool) -> JsonObject:
    """The question of a task: its text, or its forms for a visitor who may answer. Empty if the task does not wait."""
    if task.status.state not in WAITING:
        return {"may_answer": False, "words": "", "questions": [], "mark": ""}
    questions = questions_in(task) if may_answer else ()
    return {
        "may_answer": may_answer,
        "words": question_words(task.status.message, task.status.state) if not questions else "",
        "questions": [_form(question) for question in questions],
        "mark": questions_mark(questions),
    }


def questions_in(task: Task) -> tuple[AgentQuestion, ...]:
    """The questions of a task that can be answered here. Their keys stay the same while the questions are open."""
    status = task.status
    return with_lasting_keys(questions_of_agent(status.message, status.state, extension_active=True), status)


def _form(question: AgentQuestion) -> JsonObject:
    return form_of(question.key, question.params)


def form_of(key: str, params: JsonObject) -> JsonObject:
    """An MCP elicitation as a form."""
    mode = "url" if params.get("mode") == "url" else "form"
    asked: JsonObject = {"key": key, "mode": mode, "words": str(params.get("message", ""))}
    if mode == "url":
        url = str(params.get("url", ""))
        return {**asked, "url": url, "web": web_link(url), "fields": []}
    return {**asked, "fields": fields_of(schema_in(params))}


def schema_of(question: AgentQuestion) -> JsonObject:
    """The schema of a question's form."""
    return schema_in(question.params)


def schema_in(params: JsonObject) -> JsonObject:
    """The schema of the form that an elicitation asks for."""
    schema = params.get("requestedSchema")
    return schema if isinstance(schema, dict) else {}


def questions_of_result(result: JsonObject) -> JsonObject | None:
    """The questions that a tool returns instead of a result, as forms with schemas, and the `state` to send back."""
    requests, state = result.get("inputRequests"), result.get("requestState")
    if result.get("resultType") != "input_required" or not isinstance(requests, dict):
        return None
    elicitations = {
        key: params
        for key, request in requests.items()
        if isinstance(request, dict) and isinstance(params := request.get("params"), dict)
    }
    questions: list[JsonValue] = [
        {**form_of(key, params), "schema": schema_in(params)} for key, params in elicitations.items()
    ]
    return {"state": state, "questions": questions}
