"""Answers as agents really give them, each row from a public report, and an agent that gives them on the raw wire.

A row is written in the form of 1.0. `spoken` puts it into the other forms word for word, with all that is odd in it.
Knows no A2A library. Must not import `bridge`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

Json = dict[str, Any]
FORMS: Final = ("JSONRPC", "HTTP+JSON", "0.3 JSONRPC", "0.3 HTTP+JSON")
_GONE: Final = object()
"""In place of a value: the field is left out."""


def part(text: str = "fine", **more: Any) -> Json:
    """A text part."""
    return {"text": text, **more}


def task(state: Any = "TASK_STATE_SUBMITTED", **more: Any) -> Json:
    """A task; a field is left out by `_GONE`."""
    return _kept({"id": "t1", "contextId": "c1", "status": {"state": state}, **more})


def chunk(*parts: Any, **more: Any) -> Json:
    """An artifact update."""
    artifact = {"artifactId": "a", "parts": [*parts], **more.pop("artifact", {})}
    return {"artifactUpdate": _kept({"taskId": "t1", "contextId": "c1", "artifact": _kept(artifact), **more})}


def turns(state: Any, *parts: Any, message: Json | None = None, **more: Any) -> Json:
    """A status update; with parts or `message` the agent says something in it."""
    said = message_of(*parts, **(message or {})) if parts or message is not None else _GONE
    status = _kept({"state": state, "message": said})
    return {"statusUpdate": _kept({"taskId": "t1", "contextId": "c1", "status": status, **more})}


def message_of(*parts: Any, **more: Any) -> Json:
    """A message of the agent."""
    return _kept({"messageId": "m1", "role": "ROLE_AGENT", "parts": [*parts], **more})


def _kept(value: Any) -> Any:
    """A value without the fields that are left out."""
    if isinstance(value, dict):
        return {name: _kept(item) for name, item in value.items() if item is not _GONE}
    return [_kept(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Row:
    """What an agent answers, and the texts of what comes of it."""

    name: str
    stream: Sequence[Json] = ()
    """The events of its stream. Nothing else tells of the task then, but for `task`."""
    texts: Sequence[str] = ("fine",)
    task: Json | None = None
    """What GetTask gives; None refuses it."""
    reply: Json | None = None
    """What SendMessage gives where nothing streams; None gives the last task of the stream, or `task`."""
    wire: Callable[[bytes], bytes] = field(default=lambda text: text)
    """What is odd about the bytes of the stream."""
    forms: Sequence[str] = FORMS
    is_error: bool = False


SUBMITTED: Final[Json] = {"task": task()}
DONE: Final = turns("TASK_STATE_COMPLETED")
FINE: Final = chunk(part())


def _around(*events: Json) -> tuple[Json, ...]:
    return (SUBMITTED, *events, DONE)


_EMPTIES: Final = (("absent", _GONE), ("null", None), ("empty", ""))
_UPDATES: Final = [
    Row(f"{name} {word}", stream)
    for word, empty in _EMPTIES
    for name, stream in (
        ("artifactUpdate.contextId", _around(chunk(part(), contextId=empty))),
        ("artifactUpdate.taskId", _around(chunk(part(), taskId=empty))),
        ("artifactUpdate of nothing", _around(chunk(part(), taskId=empty, contextId=empty))),
        ("artifactId", _around(chunk(part(), artifact={"artifactId": empty}))),
        ("artifact.name", _around(chunk(part(), artifact={"name": empty, "description": empty}))),
        ("artifact.metadata", _around(chunk(part(), artifact={"metadata": empty, "extensions": empty}))),
        ("append", _around(chunk(part(), append=empty, lastChunk=empty))),
        ("statusUpdate.contextId", (SUBMITTED, FINE, turns("TASK_STATE_COMPLETED", contextId=empty))),
        ("statusUpdate.taskId", (SUBMITTED, FINE, turns("TASK_STATE_COMPLETED", taskId=empty))),
        ("statusUpdate.status", _around(turns("x", status=empty), FINE)),
        ("statusUpdate.metadata", _around(turns("TASK_STATE_WORKING", metadata=empty), FINE)),
        ("task.contextId", ({"task": task(contextId=empty)}, FINE, DONE)),
        ("task.status", ({"task": task(status=empty)}, FINE, DONE)),
        ("task.state", ({"task": task(empty)}, FINE, DONE)),
        ("task.id", ({"task": task(id=empty)}, FINE, DONE)),
        ("task.lists", ({"task": task(artifacts=empty, history=empty, metadata=empty)}, FINE, DONE)),
        ("state", _around(turns(empty, part("so far")), FINE)),
        ("no context at all", ({"task": task(contextId=empty)}, chunk(part(), contextId=empty), DONE)),
        ("no task at first", (chunk(part(), contextId=empty), DONE)),
        ("role", (SUBMITTED, turns("TASK_STATE_COMPLETED", part(), message={"role": empty}))),
        ("messageId", (SUBMITTED, turns("TASK_STATE_COMPLETED", part(), message={"messageId": empty}))),
        ("parts of a message", _around(turns("TASK_STATE_WORKING", message={"parts": empty}), FINE)),
        ("parts of an artifact", _around(chunk(artifact={"parts": empty}), FINE)),
        (
            "artifact",
            _around(
                chunk(artifact={}, lastChunk=True),
                FINE,
            ),
        ),
        ("last parts", _around(FINE, chunk(artifact={"parts": empty}, append=True, lastChunk=True))),
        ("message.role", ({"message": message_of(part(), role=empty)},)),
        ("message.messageId", ({"message": message_of(part(), messageId=empty)},)),
        ("message.contextId", ({"message": message_of(part(), contextId=empty, taskId=empty)},)),
        (
            "timestamp",
            _around(turns("TASK_STATE_WORKING"), FINE, turns("TASK_STATE_WORKING", timestamp=empty)),
        ),
    )
]

_PIECES_OF: Final = [
    {"message": message_of(*(part(text) for text in texts))}
    for texts in ((), ("Hello, ",), ("wor",), ("ld",), ())
]
_WORKING: Final = turns("TASK_STATE_WORKING")
_MESSAGES: Final = [
    Row(
        "a message last",
        (SUBMITTED, _WORKING, {"message": message_of(part(), taskId="t1")}),
        task=task("TASK_STATE_WORKING"),
    ),
    Row("a message last, no GetTask", (SUBMITTED, _WORKING, {"message": message_of(part(), taskId="t1")})),
    Row(
        "a message of no task last",
        (SUBMITTED, {"message": message_of(part())}),
        task=task("TASK_STATE_WORKING"),
    ),
    Row(
        "a message last, the task knows better",
        (SUBMITTED, {"message": message_of(part("on it"), taskId="t1")}),
        task=task("TASK_STATE_COMPLETED", artifacts=[{"artifactId": "a", "parts": [part()]}]),
    ),
    Row(
        "an artifact and a message last",
        (SUBMITTED, chunk(part("one")), {"message": message_of(part("two"), taskId="t1")}),
        ("one", "two"),
    ),
    Row("pieces of a message", _PIECES_OF, ("Hello, world",)),
    Row("pieces from the first on", _PIECES_OF[1:], ("Hello, world",)),
    Row(
        "pieces of a message in a task",
        (SUBMITTED, *({"message": {**one["message"], "taskId": "t1"}} for one in _PIECES_OF), DONE),
        ("Hello, world",),
    ),
    Row(
        "pieces in a task that stays at work",
        (SUBMITTED, *({"message": {**one["message"], "taskId": "t1"}} for one in _PIECES_OF)),
        ("Hello, world",),
        task("TASK_STATE_WORKING"),
    ),
    Row(
        "pieces in the statuses",
        (SUBMITTED, *(turns("TASK_STATE_WORKING", part(text)) for text in ("Hello, ", "wor", "ld")), DONE),
        ("Hello, world",),
    ),
    Row(
        "pieces, then the task with the whole",
        (
            SUBMITTED,
            *({"message": {**one["message"], "taskId": "t1"}} for one in _PIECES_OF),
            DONE,
            {"task": task("TASK_STATE_COMPLETED", history=[message_of(part("Hello, world"))])},
        ),
        ("Hello, world",),
    ),
    Row(
        "two messages",
        ({"message": message_of(part("one"))}, {"message": message_of(part("two"), messageId="m2")}),
        ("one", "two"),
    ),
    Row(
        "a message, then its task",
        ({"message": message_of(part("on it"))}, SUBMITTED, FINE, DONE),
    ),
]
_HELD: Final = [
    Row("an append to nothing", _around(chunk(part(), append=True))),
    Row(
        "an append after another artifact",
        _around(chunk(part("one"), artifact={"artifactId": "b"}), chunk(part(), append=True)),
        ("one", "fine"),
    ),
    Row(
        "a history alone",
        (
            {
                "task": task(
                    "TASK_STATE_COMPLETED",
                    history=[message_of(part("hi"), role="ROLE_USER"), message_of(part(), messageId="m2")],
                )
            },
        ),
    ),
    Row(
        "a history alone, kept",
        (SUBMITTED, DONE),
        task=task("TASK_STATE_COMPLETED", history=[message_of(part())]),
    ),
    Row("a task that begins twice", (SUBMITTED, SUBMITTED, FINE, DONE)),
    Row("a task that begins at work", (turns("TASK_STATE_WORKING"), FINE, DONE)),
    Row("an end that is said twice", (SUBMITTED, FINE, DONE, DONE)),
]
_SAYS_DONE: Final = turns("TASK_STATE_COMPLETED", part("done"))
_COMPLETE: Final = task("TASK_STATE_COMPLETED", artifacts=[{"artifactId": "a", "parts": [part()]}])
_LATE: Final = [
    Row("done, then the artifact", (SUBMITTED, _SAYS_DONE, FINE), ("fine", "done")),
    Row(
        "done, then the artifact in pieces",
        (SUBMITTED, _SAYS_DONE, chunk(part("fi")), chunk(part("ne"), append=True)),
        ("fine", "done"),
    ),
    Row("done, then the task", (SUBMITTED, _SAYS_DONE, {"task": _COMPLETE})),
    Row("done, and the task knows more", (SUBMITTED, _SAYS_DONE), ("fine", "done"), task=_COMPLETE),
    Row("done alone", (SUBMITTED, turns("TASK_STATE_COMPLETED", part()))),
    Row(
        "failed, then half of it",
        (SUBMITTED, turns("TASK_STATE_FAILED", part("no paper")), FINE),
        ("no paper", "[The agent's task failed]", "fine"),
        is_error=True,
    ),
]

_NOTE: Final = '[Part 1 of artifact a is of a kind that cannot be read and is left out: {"widget": {"x": 1}}]'
_PARTS: Final = [
    Row("null siblings", _around(chunk(part(raw=None, url=None, data=None)))),
    Row("empty siblings", _around(chunk(part(raw="", url="")))),
    Row(
        "null siblings of data",
        _around(chunk({"text": None, "raw": None, "url": None, "data": {"a": 1}})),
        ('{"a": 1}',),
    ),
    Row("an empty part", _around(chunk({}, part()))),
    Row("an empty part alone", _around(chunk({}), chunk(part(), artifact={"artifactId": "b"}))),
    Row("a part of metadata alone", _around(chunk({"metadata": {"a": 1}}, part()))),
    Row("a null part", _around(chunk(None, part()))),
    Row("a string as a part", _around(chunk("fine"))),
    Row("one part for a list", _around(chunk(artifact={"parts": part()}))),
    Row("a text that is a number", _around(chunk({"text": 5}, part())), ("5", "fine"), forms=FORMS[:2]),
    Row("an unknown part", _around(chunk({"widget": {"x": 1}}, part())), (_NOTE, "fine")),
    Row("only an unknown part", _around(chunk({"widget": {"x": 1}})), (_NOTE,)),
    Row("an unknown field of a part", _around(chunk(part(widget={"x": 1})))),
    Row(
        "two contents in one part",
        _around(chunk({"text": "fine", "data": {"a": 1}})),
        ("fine", '{"a": 1}'),
        forms=FORMS[:2],
    ),
    Row("odd metadata of a part", _around(chunk(part(metadata="x", mediaType=5)))),
]
_UNKNOWN: Final = [
    Row("an unknown event", _around({"weatherUpdate": {"taskId": "t1", "sky": "blue"}}, FINE)),
    Row("an unknown event first", ({"weatherUpdate": {"sky": "blue"}}, *_around(FINE))),
    Row("an event of nothing", _around({}, FINE)),
    Row("an unknown state", _around(turns("TASK_STATE_PONDERING", part("hm")), FINE)),
    Row("an unknown state first", ({"task": task("TASK_STATE_PONDERING")}, FINE, DONE)),
    Row(
        "an unknown role",
        _around(turns("TASK_STATE_WORKING", part("hm"), message={"role": "ROLE_OWL"}), FINE),
    ),
    Row("odd metadata", _around(chunk(part(), metadata="x", append="no"))),
    Row(
        "an odd artifact in a task",
        (
            {
                "task": task(
                    "TASK_STATE_COMPLETED", artifacts=["x", None, {"artifactId": "a", "parts": [part()]}]
                )
            },
        ),
    ),
    Row("an odd message in a history", ({"task": task(history=["x", 5, {"parts": None}])}, FINE, DONE)),
    Row(
        "an odd time",
        ({"task": {**task(), "status": {"state": "TASK_STATE_WORKING", "timestamp": 17}}}, FINE, DONE),
    ),
    Row("two payloads in one event", ({**SUBMITTED, **FINE}, DONE), forms=FORMS[:2]),
    Row("numbers for states", ({"task": task(1)}, FINE, turns(3)), forms=FORMS[:2]),
    Row(
        "numbers for ids",
        ({"task": task(id=7)}, chunk(part(), taskId=7), turns("TASK_STATE_COMPLETED", taskId=7)),
    ),
]

_FILE: Final = {"raw": "iVBORw0KGgo=", "mediaType": "image/png"}
_URL: Final = {"url": "data:image/png;base64,iVBORw0KGgo="}
IMAGE: Final = "image/png iVBORw0KGgo="
_FILES: Final = [
    Row("base64 with newlines", _around(chunk({**_FILE, "raw": "iVBO\r\nRw0K\nGgo=\n"})), (IMAGE,)),
    Row("an empty uri beside bytes", _around(chunk({**_FILE, "url": ""})), (IMAGE,)),
    Row("a null uri beside bytes", _around(chunk({**_FILE, "url": None})), (IMAGE,)),
    Row(
        "a uri and bytes", _around(chunk({**_FILE, "url": "https://a.example/x"})), (IMAGE,), forms=FORMS[2:]
    ),
    Row("a data URL", _around(chunk(_URL)), (IMAGE,)),
    Row("a data URL in capitals", _around(chunk({"url": "DATA:image/png;BASE64,iVBORw0KGgo="})), (IMAGE,)),
    Row("a data URL with escapes", _around(chunk({"url": "data:image/png;base64,iVBORw0KGgo%3D"})), (IMAGE,)),
    Row(
        "a data URL with a type beside",
        _around(chunk({**_URL, "mediaType": "image/png", "filename": "a.png"})),
        (IMAGE,),
    ),
    Row(
        "a data URL without base64",
        _around(chunk({"url": "data:image/svg+xml,%3Csvg/%3E"})),
        ("image/svg+xml PHN2Zy8+",),
    ),
    Row("a data URL in place of base64", _around(chunk({**_FILE, "raw": _URL["url"]})), (IMAGE,)),
]


def _last_without_blank_line(body: bytes) -> bytes:
    return body.removesuffix(b"\n\n")


_HALVES: Final = _around(chunk(part("wor\ud83d")), chunk(part("\ude00ld"), append=True))
_WIRE: Final = [
    Row("data of nothing", _around(FINE), wire=lambda body: b"data:\n\ndata: \n\n" + body + b"data:\n\n"),
    Row("the last event without its blank line", _around(FINE), wire=_last_without_blank_line),
    Row("the last event without any line end", (SUBMITTED, FINE, DONE), wire=lambda body: body.rstrip(b"\n")),
    Row(
        "a message without its blank line", ({"message": message_of(part())},), wire=_last_without_blank_line
    ),
    Row("a byte order mark", _around(FINE), wire=lambda body: b"\xef\xbb\xbf" + body),
    Row(
        "a byte order mark in each event",
        _around(FINE),
        wire=lambda body: body.replace(b"data: ", b"data: \xef\xbb\xbf"),
    ),
    Row(
        "an event that is no JSON",
        _around(FINE),
        wire=lambda body: b"data: [DONE]\n\n" + body + b"data: [DONE]\n\n",
    ),
    Row("CRLF", _around(FINE), wire=lambda body: body.replace(b"\n", b"\r\n")),
    Row("CR", _around(FINE), wire=lambda body: body.replace(b"\n", b"\r")),
    Row(
        "comments",
        _around(FINE),
        wire=lambda body: body.replace(b"data: ", b": ping\n\nevent: message\nid: 1\ndata: "),
    ),
    Row("a cut character", _HALVES, ("wor\U0001f600ld",)),
    Row(
        "a cut character in a message",
        tuple({"message": message_of(part(text))} for text in ("wor\ud83d", "\ude00ld")),
        ("wor\U0001f600ld",),
    ),
    Row("half a character", _around(chunk(part("wor\ud83d"))), ("wor",)),
]

STREAMED: Final[Sequence[Row]] = (*_UPDATES, *_HELD, *_MESSAGES, *_LATE, *_PARTS, *_UNKNOWN, *_FILES, *_WIRE)
"""What comes in a stream."""


def _with_artifact(**more: Any) -> Json:
    return task("TASK_STATE_COMPLETED", artifacts=[_kept({"artifactId": "a", "parts": [part()], **more})])


POLLED: Final[Sequence[Row]] = (
    *(
        Row(f"{name} {word}", task=read)
        for word, empty in _EMPTIES
        for name, read in (
            ("task.id", {**_with_artifact(), "id": empty}),
            ("task.contextId", {**_with_artifact(), "contextId": empty}),
            ("artifactId", _with_artifact(artifactId=empty)),
            (
                "an artifact without parts",
                task(
                    "TASK_STATE_COMPLETED",
                    artifacts=[{"artifactId": "b", "parts": empty}, {"artifactId": "a", "parts": [part()]}],
                ),
            ),
            ("history", {**_with_artifact(), "history": empty}),
            (
                "artifacts",
                {
                    **task("TASK_STATE_COMPLETED", artifacts=empty),
                    "status": {"state": "TASK_STATE_COMPLETED", "message": message_of(part())},
                },
            ),
            (
                "role",
                {
                    **task(),
                    "status": {"state": "TASK_STATE_COMPLETED", "message": message_of(part(), role=empty)},
                },
            ),
            (
                "messageId",
                {
                    **task(),
                    "status": {
                        "state": "TASK_STATE_COMPLETED",
                        "message": message_of(part(), messageId=empty),
                    },
                },
            ),
        )
    ),
    Row(
        "a history of pieces",
        task=task("TASK_STATE_COMPLETED", history=[message_of(part(text)) for text in ("fi", "n", "e")]),
    ),
    Row("null siblings", task=_with_artifact(parts=[part(raw=None, url=None, data=None)])),
    Row("an unknown part", task=_with_artifact(parts=[{"widget": {"x": 1}}, part()]), texts=(_NOTE, "fine")),
    Row("odd things everywhere", task={**_with_artifact(), "metadata": "x", "history": ["x"], "kindness": 1}),
    Row("a data URL", task=_with_artifact(parts=[_URL]), texts=(IMAGE,)),
    Row(
        "base64 with newlines",
        task=_with_artifact(parts=[{**_FILE, "raw": "iVBO\nRw0KGgo="}]),
        texts=(IMAGE,),
    ),
    *(
        Row(f"a message without {name}", reply={"message": message_of(part(), **{name: empty})})
        for name in ("role", "messageId", "taskId", "contextId")
        for _, empty in _EMPTIES
    ),
    Row("a task without a state", reply={"task": task(status=_GONE)}, task=_with_artifact()),
    Row("a task of an unknown state", reply={"task": task("TASK_STATE_PONDERING")}, task=_with_artifact()),
)
"""What is read without a stream."""


# The forms

_OLDER_KINDS: Final = {
    "task": "task",
    "message": "message",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
}


def spoken(value: Any, form: str) -> Any:
    """An event, or another answer that names its payload, in one of the forms."""
    if form in FORMS[:2] or not isinstance(value, dict):
        return value
    older, value = _Older(form), _kept(value)
    if form == FORMS[3]:
        return {name: older.payload(item) for name, item in deepcopy(value).items()}
    named = [(name, item) for name, item in deepcopy(value).items() if isinstance(item, dict)]
    if not named:
        return value
    [(name, item)] = named
    return {**older.payload(item), "kind": _OLDER_KINDS.get(name, name)}


@dataclass(frozen=True)
class _Older:
    form: str

    def payload(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {**value}
        if isinstance(status := value.get("status"), dict):
            changed["status"] = {
                **status,
                **({"state": self._word(status["state"], "TASK_STATE_")} if "state" in status else {}),
                **({"message": self.message(status["message"])} if "message" in status else {}),
            }
        if isinstance(artifacts := value.get("artifacts"), list):
            changed["artifacts"] = [self.artifact(one) for one in artifacts]
        if isinstance(history := value.get("history"), list):
            changed["history"] = [self.message(one) for one in history]
        if "artifact" in value:
            changed["artifact"] = self.artifact(value["artifact"])
        return self.message(changed) if "parts" in value or "role" in value else changed

    def message(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {**self.artifact(value)}
        if "role" in value:
            changed["role"] = self._word(value["role"], "ROLE_")
        if self.form == FORMS[3] and "parts" in changed:
            changed["content"] = changed.pop("parts")
        elif self.form != FORMS[3]:
            changed["kind"] = "message"
        return changed

    def artifact(self, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(parts := value.get("parts"), list):
            return (
                value
                if not isinstance(value, dict) or not isinstance(value.get("parts"), dict)
                else {**value, "parts": self.part(value["parts"])}
            )
        return {**value, "parts": [self.part(one) for one in parts]}

    def part(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        names = {"raw": "fileWithBytes", "url": "fileWithUri", "mediaType": "mimeType", "filename": "name"}
        if self.form != FORMS[3]:
            names = {"raw": "bytes", "url": "uri", "mediaType": "mimeType", "filename": "name"}
        kind = next((one for one in ("text", "data", "raw", "url", "widget") if value.get(one)), None)
        changed = {name: item for name, item in value.items() if name not in names}
        if kind in ("raw", "url"):
            changed["file"] = {older: value[name] for name, older in names.items() if name in value}
        elif kind and ("raw" in value or "url" in value):
            changed["file"] = None
        if kind == "data" and self.form == FORMS[3]:
            changed["data"] = {"data": value["data"]}
        if kind and self.form != FORMS[3] and kind != "widget":
            changed["kind"] = "file" if kind in ("raw", "url") else kind
        return changed

    def _word(self, value: Any, prefix: str) -> Any:
        if not isinstance(value, str) or self.form == FORMS[3]:
            return value
        return value.removeprefix(prefix).lower().replace("_", "-")


# The agent

_STREAMS: Final = ("SendStreamingMessage", "message/stream")
_SENDS: Final = ("SendMessage", "message/send")
_GETS: Final = ("GetTask", "tasks/get")


@dataclass
class RawAgent:
    """An agent that answers each message with the row that its text names, in one of the forms."""

    rows: Sequence[Row]
    form: str
    card: Json | None = None
    """Its card, with `{url}` in place of its URL; None serves none."""
    _row: Row = Row("")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await (await self._response(request))(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        path, body = request.url.path, await request.body()
        if path.endswith("/agent-card.json") and self.card is not None:
            return JSONResponse(json.loads(json.dumps(self.card).replace("{url}", str(request.base_url))))
        said: Json = json.loads(body) if body else {}
        if self.form.endswith("JSONRPC"):
            if request.method != "POST":
                return Response(status_code=404)
            return self._answered(said["method"], said["params"], said["id"])
        method = next(
            (name for name, mark in ((_STREAMS[0], ":stream"), (_SENDS[0], ":send")) if path.endswith(mark)),
            "",
        )
        is_task = request.method == "GET" and "/tasks/" in path and ":" not in path
        return self._answered(method or (_GETS[0] if is_task else ""), said, None)

    def _answered(self, method: str, params: Json, call_id: Any) -> Response:
        if "message" in params:
            [first, *_] = params["message"].get("parts") or params["message"]["content"]
            self._row = next(row for row in self.rows if row.name == first["text"])
        row = self._row
        if method in _STREAMS:
            body = b"".join(
                b"data: %b\n\n" % self._text(spoken(one, self.form), call_id) for one in row.stream
            )
            return Response(row.wire(body), media_type="text/event-stream")
        if method in _SENDS:
            reply = row.reply or {"task": row.task}
            return Response(self._text(spoken(reply, self.form), call_id), media_type="application/json")
        if method in _GETS and row.task is not None:
            read = spoken({"task": _kept(row.task)}, self.form)
            read = read if self.form == FORMS[2] else read["task"]
            return Response(self._text(read, call_id), media_type="application/json")
        error = {"code": -32001, "message": "Task not found"}
        if self.form.endswith("JSONRPC"):
            return JSONResponse({"jsonrpc": "2.0", "id": call_id, "error": error})
        return JSONResponse({"error": {**error, "details": []}} if self.form == FORMS[1] else error, 404)

    def _text(self, result: Any, call_id: Any) -> bytes:
        result = _kept(result)
        enveloped = {"jsonrpc": "2.0", "id": call_id, "result": result}
        return json.dumps(enveloped if self.form.endswith("JSONRPC") else result).encode()
