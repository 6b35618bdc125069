"""Checks of the JSON-RPC binding's own words. Spec: A2A 1.0 section 9; JSON-RPC 2.0."""

from __future__ import annotations

from typing import Any, Final

from tests.a2a_checks.bindings import CANCEL, EXTENDED_CARD, GET, SEND, STREAM, JsonRpc
from tests.a2a_checks.errors import BAD_REQUEST, DOMAIN, ERROR_INFO, Fault, Kind
from tests.a2a_checks.occasions import Occasions, need_streams
from tests.a2a_checks.shapes import SEND_RESPONSE, STREAM_RESPONSE
from tests.a2a_checks.table import ONLY_JSONRPC, Check, Level, Need, Section, require, shown
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk, state_of
from tests.a2a_checks.wire import Answer, events_of

NOT_AN_ENVELOPE: Final[tuple[Any, ...]] = (
    {"id": 1, "method": GET, "params": {"id": "x"}},
    {"jsonrpc": "1.0", "id": 1, "method": GET, "params": {"id": "x"}},
    {"jsonrpc": "2.0", "id": 1},
    {"jsonrpc": "2.0", "id": 1, "method": 7},
    "SendMessage",
)


def _rpc(talk: Talk) -> JsonRpc:
    assert isinstance(talk.binding, JsonRpc)
    return talk.binding


async def _posted(talk: Talk, body: object) -> Answer:
    return await talk.wire.send(_rpc(talk).posted(body).with_headers(talk.headers))


async def _called(talk: Talk, **fields: Any) -> Answer:
    return await talk.wire.send(_rpc(talk).envelope(fields).with_headers(talk.headers))


def _require_envelope(body: Any, request_id: Any, came: str) -> None:
    expected = f'jsonrpc "2.0", id {request_id!r}, and either result or error'
    require(isinstance(body, dict) and body.get("jsonrpc") == "2.0", expected, came)
    same = body.get("id") == request_id and type(body.get("id")) is type(request_id)
    require(same and ("result" in body) != ("error" in body), expected, came)


async def answers_in_an_envelope(talk: Talk, agent: Occasions) -> None:
    for request_id in (41, "a string", "7"):
        for method, params in ((GET, {"id": UNKNOWN_TASK}), (SEND, agent.send())):
            answer = await _called(talk, id=request_id, method=method, params=params)
            _require_envelope(answer.json(), request_id, answer.shown())
            if "result" in answer.json():
                talk.heard.take(method, talk.binding.reply(answer))


async def answers_as_json(talk: Talk, agent: Occasions) -> None:
    for method, params in ((GET, {"id": UNKNOWN_TASK}), ("NoSuchMethod", {}), (SEND, agent.send())):
        call = _rpc(talk).envelope({"method": method, "params": params}).with_headers(talk.headers)
        reply = await talk.ask_with(method, call)
        require(reply.answer.media_type == "application/json", "application/json", reply.answer.shown())


async def _refused(talk: Talk, body: object, kind: Fault) -> Any:
    reply = talk.binding.reply(await _posted(talk, body))
    talk.heard.take("", reply)
    talk.require_refusal(reply, kind)
    return reply.answer.json()


async def refuses_what_is_no_json(talk: Talk, agent: Occasions) -> None:
    for text in (b'{"jsonrpc": "2.0", "id": 1, "method": ', b"not json", b'{"id": "\xff"}'):
        body = await _refused(talk, text, Fault.PARSE)
        require(body.get("id", 0) is None, "id null, as none could be read", body)


async def refuses_what_is_no_call(talk: Talk, agent: Occasions) -> None:
    for body in NOT_AN_ENVELOPE:
        await _refused(talk, body, Fault.INVALID_REQUEST)


async def refuses_unknown_methods(talk: Talk, agent: Occasions) -> None:
    for method in ("NoSuchMethod", "sendmessage", "category/action"):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
        await _refused(talk, call, Fault.METHOD_NOT_FOUND)


async def refuses_wrong_params(talk: Talk, agent: Occasions) -> None:
    for params in ({"message": "hello"}, {"message": {"parts": "hello"}}, [1, 2]):
        call = {"jsonrpc": "2.0", "id": 1, "method": SEND, "params": params}
        await _refused(talk, call, Fault.INVALID_PARAMS)


async def takes_no_params_for_an_empty_object(talk: Talk, agent: Occasions) -> None:
    answer = await _called(talk, method=EXTENDED_CARD)
    reply = talk.binding.reply(answer)
    if reply.refusal is not None:
        fine = reply.refusal.code not in (Fault.INVALID_PARAMS.value[0], Fault.INVALID_REQUEST.value[0])
        require(fine, "the operation, as with empty params", reply.refusal.shown())


async def types_its_details(talk: Talk, agent: Occasions) -> None:
    await talk.ask(GET, {"id": UNKNOWN_TASK})
    await talk.probe(talk.request(SEND, {"message": {"parts": "hello"}}))
    for refusal in talk.heard.refusals:
        if refusal.details is not None:
            fine = isinstance(refusal.details, list) and all(
                isinstance(one, dict) and isinstance(one.get("@type"), str) for one in refusal.details
            )
            require(fine, "data: an array of objects with @type", refusal.shown())


async def has_code_and_message(talk: Talk, agent: Occasions) -> None:
    await talk.ask(GET, {"id": UNKNOWN_TASK})
    for refusal in talk.heard.refusals:
        fine = type(refusal.code) is int and isinstance(refusal.message, str) and refusal.message
        require(bool(fine), "an integer code and a message in words", refusal.shown())


async def names_the_reason(talk: Talk, agent: Occasions) -> None:
    refusal = await talk.refused(Kind.TASK_NOT_FOUND, GET, {"id": UNKNOWN_TASK})
    info = refusal.typed(ERROR_INFO) or {}
    fine = info.get("reason") == "TASK_NOT_FOUND" and info.get("domain") == DOMAIN
    require(fine, f"ErrorInfo with reason TASK_NOT_FOUND, domain {DOMAIN}", refusal.shown())


async def names_the_field(talk: Talk, agent: Occasions) -> None:
    refusal = talk.require_refusal(
        await talk.probe(talk.request(SEND, {"message": agent.message(parts="hello")})), Fault.INVALID_PARAMS
    )
    found = (refusal.typed(BAD_REQUEST) or {}).get("fieldViolations")
    require(bool(found), "BadRequest with fieldViolations", refusal.shown())


async def wraps_what_is_sent(talk: Talk, agent: Occasions) -> None:
    result = await talk.result(SEND, agent.send())
    require(_holds_one_of(result, SEND_RESPONSE.choice), "{task} or {message}", result)


def _holds_one_of(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and sum(isinstance(value.get(name), dict) for name in names) == 1


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


async def wraps_each_event(talk: Talk, agent: Occasions) -> None:
    need_streams(talk)
    request = _rpc(talk).envelope({"id": "stream-1", "method": STREAM, "params": agent.send()})
    async with talk.wire.opened(request.with_headers(talk.headers)) as response:
        head = Answer(response.status_code, response.headers, b"")
        async for text in events_of(response):
            reply = talk.binding.event(text, head)
            talk.heard.take(STREAM, reply)
            _require_envelope(_json(text), "stream-1", shown(text))
            require(_holds_one_of(reply.value(), STREAM_RESPONSE.choice), "a StreamResponse", text)


def _json(text: str) -> Any:
    return Answer(200, {}, text.encode()).json()  # type: ignore[arg-type]


def _check(
    check_id: str, spec: str, sentence: str, run: Any, *needs: Need, level: Level = Level.MUST
) -> Check:
    return Check(check_id, Section.JSONRPC, spec, level, sentence, run, needs, ONLY_JSONRPC)


CHECKS: Final = (
    _check(
        "rpc-envelope",
        "9.1",
        "Answers are JSON-RPC 2.0 with the request's id as it was",
        answers_in_an_envelope,
    ),
    _check("rpc-content-type", "9.1", "Answers are application/json, errors too", answers_as_json),
    _check(
        "rpc-parse-error", "9.5", "What is no JSON is error -32700, with id null", refuses_what_is_no_json
    ),
    _check("rpc-invalid-request", "9.5", "What is no request is error -32600", refuses_what_is_no_call),
    _check(
        "rpc-method-not-found", "9.5", "A method that does not exist is error -32601", refuses_unknown_methods
    ),
    _check(
        "rpc-invalid-params", "9.5", "Parameters of the wrong kind are error -32602", refuses_wrong_params
    ),
    _check(
        "rpc-no-params",
        "9.4.8",
        "GetExtendedAgentCard may be called without params",
        takes_no_params_for_an_empty_object,
    ),
    _check(
        "rpc-error-fields", "9.5", "An error has a numeric code and a message in words", has_code_and_message
    ),
    _check("rpc-error-data", "9.5", "error.data is an array of objects, each with @type", types_its_details),
    _check(
        "rpc-error-info",
        "9.5",
        "An error of A2A carries a google.rpc.ErrorInfo with reason and domain",
        names_the_reason,
        level=Level.SHOULD,
    ),
    _check(
        "rpc-bad-request",
        "9.5",
        "A validation error carries a google.rpc.BadRequest that names the field",
        names_the_field,
        level=Level.SHOULD,
    ),
    _check("rpc-send-wrapped", "9.4.1", "SendMessage's result is {task} or {message}", wraps_what_is_sent),
    _check("rpc-get-bare", "9.4.3", "GetTask's result is a bare Task", gets_bare_tasks, Need.TASK),
    _check(
        "rpc-cancel-bare", "9.4.5", "CancelTask's result is a bare Task", cancels_to_bare_tasks, Need.OPEN
    ),
    _check(
        "rpc-stream-envelope",
        "9.4.2",
        "Each event is a JSON-RPC answer with the request's id around a StreamResponse",
        wraps_each_event,
        Need.STREAMS,
    ),
)
