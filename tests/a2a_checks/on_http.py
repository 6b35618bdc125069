"""Checks of the HTTP+JSON binding's own words. Spec: A2A 1.0 section 11."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import CANCEL, GET, LIST, SEND, SUBSCRIBE, HttpJson, to_json
from tests.a2a_checks.errors import BAD_REQUEST, DOMAIN, ERROR_INFO, Fault, Kind, Refusal
from tests.a2a_checks.occasions import Occasions, need_streams
from tests.a2a_checks.shapes import SEND_RESPONSE
from tests.a2a_checks.table import ONLY_HTTP_JSON, Check, Level, Need, Section, require
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk, new_id, state_of
from tests.a2a_checks.wire import Request

A2A_JSON: Final = "application/a2a+json"
NOT_A_REQUEST: Final[tuple[Any, ...]] = (
    {"message": "hello"},
    {"message": {"parts": "hello"}},
    [],
    "hello",
    None,
    7,
)


def _at(talk: Talk, verb: str, path: str, body: bytes | None = None, **headers: str) -> Request:
    assert isinstance(talk.binding, HttpJson)
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    return talk.binding.at(verb, path, body).with_headers({**talk.headers, **changed})


async def wraps_what_is_sent(talk: Talk, agent: Occasions) -> None:
    reply = await talk.ask(SEND, agent.send())
    result = reply.value()
    held = [name for name in SEND_RESPONSE.choice if isinstance(result, dict) and name in result]
    require(len(held) == 1, "{task} or {message}", result)
    require(reply.answer.status == 200, "status 200", reply.answer.shown())


async def gets_bare_tasks(talk: Talk, agent: Occasions) -> None:
    task = await agent.task()
    found = await talk.result(GET, {"id": task["id"]})
    require(
        isinstance(found, dict) and found.get("id") == task["id"] and bool(state_of(found)),
        "a bare Task",
        found,
    )


async def cancels_to_bare_tasks(talk: Talk, agent: Occasions) -> None:
    task = await agent.open()
    found = await talk.result(CANCEL, {"id": task["id"]})
    require(
        isinstance(found, dict) and found.get("id") == task["id"] and bool(state_of(found)),
        "a bare Task",
        found,
    )


async def _subscribes(talk: Talk, agent: Occasions, verb: str) -> None:
    need_streams(talk)
    task = await agent.open()
    async with talk.stream_of(_at(talk, verb, f"/tasks/{task['id']}:subscribe"), SUBSCRIBE) as stream:
        first = (await stream.first()).value()
        require("task" in first, "a stream that begins with the Task", first)


async def subscribes_by_post(talk: Talk, agent: Occasions) -> None:
    await _subscribes(talk, agent, "POST")


async def subscribes_by_get(talk: Talk, agent: Occasions) -> None:
    await _subscribes(talk, agent, "GET")


async def answers_as_a2a_json(talk: Talk, agent: Occasions) -> None:
    replies = (await talk.ask(SEND, agent.send()), await talk.ask(GET, {"id": UNKNOWN_TASK}))
    for reply in replies:
        require(reply.answer.media_type == A2A_JSON, A2A_JSON, reply.answer.shown())


async def answers_as_asked(talk: Talk, agent: Occasions) -> None:
    for operation, path in ((GET, f"/tasks/{UNKNOWN_TASK}"), (LIST, f"/tasks?contextId={new_id()}")):
        reply = await talk.ask_with(operation, _at(talk, "GET", path, Accept="application/json"))
        require(reply.answer.media_type == "application/json", "application/json", reply.answer.shown())


async def _takes(talk: Talk, agent: Occasions, media_type: str) -> None:
    body = to_json(agent.send())
    (await talk.ask_with(SEND, _at(talk, "POST", "/message:send", body, Content_Type=media_type))).value()


async def takes_a2a_json(talk: Talk, agent: Occasions) -> None:
    await _takes(talk, agent, A2A_JSON)


async def takes_json(talk: Talk, agent: Occasions) -> None:
    await _takes(talk, agent, "application/json")


async def takes_camel_case_queries(talk: Talk, agent: Occasions) -> None:
    task = await agent.task()
    path = f"/tasks?contextId={task['contextId']}&pageSize=1&includeArtifacts=false&historyLength=0"
    page = (await talk.ask_with(LIST, _at(talk, "GET", path))).value()
    ids = [one.get("contextId") for one in page["tasks"]]
    require(ids == [task["contextId"]], "one task of the context", page)
    found = (await talk.ask_with(GET, _at(talk, "GET", f"/tasks/{task['id']}?historyLength=0"))).value()
    require(not found.get("history"), "no history", found.get("history"))


async def _refusals(talk: Talk, agent: Occasions) -> list[Refusal]:
    """Refusals of several kinds."""
    ended = await agent.ended()
    replies = [
        await talk.ask(GET, {"id": UNKNOWN_TASK}),
        await talk.ask(CANCEL, {"id": UNKNOWN_TASK}),
        await talk.ask(CANCEL, {"id": ended["id"]}),
        await talk.ask(SEND, agent.send(taskId=ended["id"])),
    ]
    invalid = await talk.probe(talk.request(SEND, {"message": agent.message(parts="hello")}))
    found = [talk.require_refusal(reply) for reply in replies]
    return found if invalid.refusal is None else [*found, invalid.refusal]


async def answers_a_status(talk: Talk, agent: Occasions) -> None:
    for refusal in await _refusals(talk, agent):
        fine = refusal.code == refusal.answer.status and isinstance(refusal.message, str)
        require(fine, "{error: {code: the HTTP status, message}}", refusal.shown())


async def names_the_rpc_status(talk: Talk, agent: Occasions) -> None:
    refusal = await talk.refused(Kind.TASK_NOT_FOUND, GET, {"id": UNKNOWN_TASK})
    said = refusal.answer.json().get("error", {}).get("status")
    require(said == "NOT_FOUND", "error.status NOT_FOUND", refusal.shown())


async def is_no_problem_json(talk: Talk, agent: Occasions) -> None:
    for refusal in await _refusals(talk, agent):
        require(refusal.answer.media_type in (A2A_JSON, "application/json"), "A2A's JSON", refusal.shown())


async def types_its_details(talk: Talk, agent: Occasions) -> None:
    await _refusals(talk, agent)
    for refusal in talk.heard.refusals:
        if refusal.details is not None:
            fine = isinstance(refusal.details, list) and all(
                isinstance(one, dict) and isinstance(one.get("@type"), str) for one in refusal.details
            )
            require(fine, "details: an array of objects with @type", refusal.shown())


async def names_the_reason(talk: Talk, agent: Occasions) -> None:
    for refusal in (await _refusals(talk, agent))[:4]:
        info = refusal.typed(ERROR_INFO) or {}
        fine = isinstance(info.get("reason"), str) and info.get("domain") == DOMAIN
        require(fine, f"ErrorInfo with reason and domain {DOMAIN}", refusal.shown())
        require(not str(info.get("reason")).endswith("_ERROR"), "a reason without ERROR", refusal.shown())


async def names_the_field(talk: Talk, agent: Occasions) -> None:
    refusal = talk.require_refusal(
        await talk.probe(talk.request(SEND, {"message": agent.message(parts="hello")}))
    )
    found = (refusal.typed(BAD_REQUEST) or {}).get("fieldViolations")
    require(bool(found), "BadRequest with fieldViolations", refusal.shown())


async def refuses_what_is_no_json(talk: Talk, agent: Occasions) -> None:
    reply = await talk.ask_with("", _at(talk, "POST", "/message:send", b'{"message": '))
    talk.require_refusal(reply, Fault.PARSE)


async def refuses_wrong_params(talk: Talk, agent: Occasions) -> None:
    for body in NOT_A_REQUEST:
        reply = await talk.probe(_at(talk, "POST", "/message:send", to_json(body)))
        talk.require_refusal(reply, Fault.INVALID_PARAMS)


async def refuses_wrong_queries(talk: Talk, agent: Occasions) -> None:
    for query in ("pageSize=ten", "historyLength=1.5", "includeArtifacts=perhaps"):
        path = f"/tasks?contextId={new_id()}&{query}"
        talk.require_refusal(await talk.ask_with(LIST, _at(talk, "GET", path)), Fault.INVALID_PARAMS)


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.HTTP_JSON, spec, level, sentence, run, needs, ONLY_HTTP_JSON)


CHECKS: Final = (
    _check("http-send", "11.4", "POST /message:send gives {task} or {message} with 200", wraps_what_is_sent),
    _check("http-get", "11.3.2", "GET /tasks/{id} gives a bare Task", gets_bare_tasks, Need.TASK),
    _check(
        "http-cancel", "11.3.2", "POST /tasks/{id}:cancel gives a bare Task", cancels_to_bare_tasks, Need.OPEN
    ),
    _check(
        "http-subscribe-post",
        "11.3.2",
        "POST /tasks/{id}:subscribe is a stream",
        subscribes_by_post,
        Need.STREAMS,
        Need.OPEN,
    ),
    _check(
        "http-subscribe-get",
        "a2a.proto",
        "GET /tasks/{id}:subscribe is a stream, as the proto has it",
        subscribes_by_get,
        Need.STREAMS,
        Need.OPEN,
        level=Level.SHOULD,
    ),
    _check(
        "http-queries",
        "11.5",
        "Query parameters are the fields' names in camelCase",
        takes_camel_case_queries,
        Need.TASK,
    ),
    _check("http-takes-a2a-json", "11.1", "Requests may be application/a2a+json", takes_a2a_json),
    _check("http-takes-json", "11.1", "Requests may be application/json", takes_json, level=Level.SHOULD),
    _check(
        "http-content-type",
        "11.1",
        "Answers are application/a2a+json",
        answers_as_a2a_json,
        level=Level.SHOULD,
    ),
    _check(
        "http-accept",
        "11.1",
        "A client that accepts application/json alone is answered with it (RFC 9110 section 12.5.1)",
        answers_as_asked,
        level=Level.SHOULD,
    ),
    _check(
        "http-error-status",
        "11.6",
        "An error is a google.rpc.Status with the HTTP status as its code",
        answers_a_status,
        Need.TASK,
    ),
    _check(
        "http-error-name",
        "5.4",
        "An error's status is the gRPC status of its kind",
        names_the_rpc_status,
        level=Level.SHOULD,
    ),
    _check(
        "http-no-problem-json",
        "11.6",
        "An error is no application/problem+json",
        is_no_problem_json,
        Need.TASK,
    ),
    _check(
        "http-error-details",
        "11.6",
        "error.details is an array of objects, each with @type",
        types_its_details,
        Need.TASK,
    ),
    _check(
        "http-error-info",
        "11.6",
        "An error of A2A carries an ErrorInfo with reason and domain",
        names_the_reason,
        Need.TASK,
    ),
    _check(
        "http-bad-request",
        "11.6",
        "A validation error carries a BadRequest that names the field",
        names_the_field,
        level=Level.SHOULD,
    ),
    _check("http-parse-error", "3.3.2", "What is no JSON is refused with 400", refuses_what_is_no_json),
    _check(
        "http-invalid-params", "3.3.2", "A body of the wrong kind is refused with 400", refuses_wrong_params
    ),
    _check(
        "http-invalid-queries",
        "11.5",
        "A query parameter of the wrong kind is refused with 400",
        refuses_wrong_queries,
    ),
)
