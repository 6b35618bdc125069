"""The asking server in 2026-07-28: results that require input, tasks by extension, and subscriptions.

A tool that asks is a table of rounds: what is asked in the first one, in the second, and so on. All that is
known between two rounds is in requestState, so any process with the same key takes it up.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from asking_jobs import Jobs, asks, shown
from asking_shapes import (
    METHOD_NOT_FOUND,
    SAMPLING,
    AskingServer,
    Call,
    Json,
    Refused,
    added,
    check_answer,
    field_form,
    form,
    missing_capability,
    sure_form,
    text,
    tool,
    url_of,
)

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
TASKS = "io.modelcontextprotocol/tasks"
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
CAPABILITIES: Json = {"tools": {"listChanged": True}, "logging": {}, "extensions": {TASKS: {}}}
JOB = {
    "steps": "integer",
    "seconds": "number",
    "ask": "boolean",
    "ask_two": "boolean",
    "ask_twice": "boolean",
    "fail": "string",
    "cancel_itself": "boolean",
    "never": "boolean",
    "stubborn": "boolean",
    "poll_ms": "integer",
    "unheard_seconds": "number",
}
TOOLS: list[Json] = [
    tool("ask", annotations={"readOnlyHint": True}),
    tool("ask-unsafe", annotations={"readOnlyHint": False, "destructiveHint": True}),
    tool("ask-one"),
    tool("ask-twice"),
    tool("ask-url", times="integer"),
    tool("ask-form-and-url"),
    tool("ask-two"),
    tool("ask-stateless"),
    tool("state-only", times="integer"),
    tool("ask-expired"),
    tool("ask-again"),
    tool("ask-progress"),
    tool("sample"),
    tool("roots"),
    tool("task-job", **JOB),
    tool("echo", required="text", text="string"),
    tool("add", required="a b", a="number", b="number"),
    tool("wait"),
    tool("cancelled"),
    tool("answers"),
    tool("requests"),
    tool("log"),
    tool("grow"),
    tool("forget"),
]
TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


def _elicit(params: Json) -> Json:
    return {"method": "elicitation/create", "params": params}


SURE = _elicit(sure_form())
CONNECT = _elicit(url_of("c-1"))
ROUNDS: dict[str, list[dict[str, Json]]] = {
    "ask": [{"who": _elicit(form("Who are you?"))}],
    "ask-unsafe": [{"who": _elicit(form("Who are you?"))}],
    "ask-one": [{"sure": SURE}],
    "ask-twice": [{"first": _elicit(field_form("first"))}, {"second": _elicit(field_form("second"))}],
    "ask-url": [{"connect": CONNECT}],
    "ask-form-and-url": [{"name": _elicit(field_form("name")), "connect": CONNECT}],
    "ask-two": [{"first": _elicit(field_form("first")), "second": _elicit(field_form("second"))}],
    "ask-stateless": [{"sure": SURE}],
    "state-only": [{}],
    "ask-expired": [{"sure": SURE}],
    "ask-progress": [{"sure": SURE}],
    "sample": [{"sample": {"method": "sampling/createMessage", "params": SAMPLING}}],
    "roots": [{"roots": {"method": "roots/list", "params": {}}}],
}


@dataclass
class Modern(AskingServer):
    """The era's server."""

    jobs: Jobs = field(default_factory=Jobs)
    key: bytes = b"asking"
    is_expiring: bool = False
    """No requestState is ever taken back."""
    forgotten: float = 0.0
    """What was asked before this time is not taken back."""
    stateless_ids: set[Any] = field(default_factory=set)
    process: str = field(default_factory=lambda: uuid.uuid4().hex)
    """An id is compared with that of the first request only within one process."""

    def answer(self, call: Call) -> Json:
        self._check(call)
        method = call.message["method"]
        match method:
            case "server/discover":
                done = {"supportedVersions": [VERSION], "capabilities": CAPABILITIES, **_cached()}
            case "tools/list":
                done = {"tools": [*TOOLS, *self.grown_tools()], **_cached()}
            case "tools/call":
                done = self._call(call)
            case "subscriptions/listen":
                done = self._listen(call)
            case _ if method in TASK_METHODS:
                done = self._task(call, method)
            case _:
                raise Refused("Method not found", METHOD_NOT_FOUND, {"supported": [VERSION]}, status=404)
        meta = {META + "serverInfo": {"name": "asking", "version": "1.0.0"}, **done.pop("_meta", {})}
        return {"resultType": "complete", **done, "_meta": meta}

    def _check(self, call: Call) -> None:
        meta = call.params.get("_meta")
        if call.headers is not None:
            self._check_headers(call, meta if isinstance(meta, dict) else {})
        if not isinstance(meta, dict):
            raise Refused("a request needs _meta", data={"supported": [VERSION]}, status=400)
        version, info = meta.get(META + "protocolVersion"), meta.get(META + "clientInfo")
        if not isinstance(version, str):
            raise Refused(f"_meta needs {META}protocolVersion", status=400)
        if version != VERSION:
            data = {"supported": [VERSION], "requested": version}
            raise Refused(f"Unsupported protocol version: {version}", UNSUPPORTED_VERSION, data, 400)
        if not isinstance(info, dict) or not {"name", "version"} <= set(info):
            raise Refused(f"_meta needs {META}clientInfo with name and version", status=400)
        if not isinstance(meta.get(META + "clientCapabilities"), dict):
            raise Refused(f"_meta needs {META}clientCapabilities", status=400)

    def _check_headers(self, call: Call, meta: Json) -> None:
        assert call.headers is not None
        method = call.message["method"]
        wanted = {"Mcp-Method": method}
        if "/" in method:  # `initialize` and `ping` belong to another era, and say no version
            wanted["MCP-Protocol-Version"] = meta.get(META + "protocolVersion")
        if method == "tools/call":
            wanted["Mcp-Name"] = call.tool
        if method in TASK_METHODS:
            wanted["Mcp-Name"] = call.params.get("taskId")
        for name, value in wanted.items():
            said = _decoded(call.headers.get(name.lower()))
            if said != value:
                words = f"the header {name} says {said!r}, the body {value!r}"
                raise Refused(words, HEADER_MISMATCH, status=400)

    def _call(self, call: Call) -> Json:
        if not isinstance(call.params.get("arguments", {}), dict):
            raise Refused("arguments is an object")
        if call.tool in ROUNDS or call.tool == "ask-again":
            return self._round(call)
        if "requestState" in call.params or "inputResponses" in call.params:
            raise Refused(f"{call.tool} asked for nothing")
        match call.tool:
            case "task-job":
                return self._begin_job(call)
            case "echo":
                return text(str(call.arguments.get("text", "nothing")))
            case "add":
                return added(call.arguments)
            case "wait":
                self.until(call, lambda: False)
            case "cancelled":
                return text(str(self.cancelled))
            case "answers":
                return text(json.dumps(self.answers))
            case "requests":
                return text(json.dumps(self.requests))
            case "log":
                if META + "logLevel" in call.params["_meta"]:
                    call.notify(
                        "notifications/message", {"level": "info", "logger": "asking", "data": "a word"}
                    )
                return text("logged")
            case "grow":
                return self._grow()
            case "forget":
                self.forgotten = time.time()
                return text("forgotten")
            case name if name in [one["name"] for one in self.grown_tools()]:
                return text(f"I am {name}")
        raise Refused(f"Unknown tool: {call.tool}")

    def _grow(self) -> Json:
        with self.moved:
            self.grown += 1
            self.moved.notify_all()
        return text("grown")

    # -- rounds

    def _round(self, call: Call) -> Json:
        """One leg of a call that asks: the next question, what is still missing, or the result."""
        responses = call.params.get("inputResponses")
        if not isinstance(responses, dict | None):
            raise Refused("inputResponses is an object")
        if call.tool == "ask-stateless":
            return self._stateless(call, responses)
        state = self._opened(call, responses)
        if call.tool == "ask-progress":
            call.progress(1 if state is None else 2, 2, "before" if state is None else "after")
        if state is None:
            state = {"round": 0, "answers": {}, "connect": str(uuid.uuid4())}
        else:
            self._take(call, state, responses or {})
        if _is_over(call, state):
            return text(_words(state["answers"]))
        return self._require(call, _open(call, state), self._sealed(call, state))

    def _stateless(self, call: Call, responses: Json | None) -> Json:
        if "requestState" in call.params:
            raise Refused("a requestState, where none was given")
        state: Json = {"round": 0, "answers": {}}
        if responses is None:
            self.stateless_ids.add(call.id)
        elif call.headers is None and call.id in self.stateless_ids:
            raise Refused("a retry needs an id of its own")
        self._take(call, state, responses or {})
        return (
            text(_words(state["answers"]))
            if state["round"]
            else self._require(call, _open(call, state), None)
        )

    def _take(self, call: Call, state: Json, responses: Json) -> None:
        """Keep the answers to what is open, and go to the next round when nothing is; ignore all others."""
        for key, asked in _open(call, state).items():
            if key in responses:
                check_answer(asked["method"], asked["params"], responses[key])
                self.answers.append({"tool": call.tool, "key": key, "result": responses[key]})
                state["answers"][f"{state['round']}:{key}"] = responses[key]
        if not _open(call, state):
            state["round"] += 1

    def _require(self, call: Call, requests: dict[str, Json], state: str | None) -> Json:
        declared = _declared(call)
        asked = [(one["method"], one["params"]) for one in requests.values()]
        self._need(call, *(missing_capability(declared, method, params) for method, params in asked))
        result: Json = {"resultType": "input_required"}
        if requests:
            result["inputRequests"] = requests
        if state is not None:
            result["requestState"] = state
        return result

    def _need(self, call: Call, *missing: Json | None) -> None:
        """Refuse what needs capabilities that the request does not declare."""
        needed: Json = {}
        for one in missing:
            for name, settings in (one or {}).items():
                needed.setdefault(name, {}).update(settings)
        if needed:
            data = {"requiredCapabilities": needed}
            raise Refused("Missing required client capability", MISSING_CAPABILITY, data, 400)

    # -- requestState

    def _opened(self, call: Call, responses: Json | None) -> Json | None:
        """What an earlier leg left in requestState, or None on the first one."""
        sealed = call.params.get("requestState")
        if sealed is None:
            if responses is not None or "requestState" in call.params:
                raise Refused("inputResponses without the requestState that was given")
            return None
        state = self._unsealed(sealed)
        if state["call"] != _digest(call):
            raise Refused("requestState belongs to another request")
        if state["process"] == self.process and state["id"] == call.id:
            raise Refused("a retry needs an id of its own")
        if self.is_expiring or state["at"] <= self.forgotten:
            raise Refused("requestState has expired")
        return state

    def _sealed(self, call: Call, state: Json) -> str:
        bound = {"call": _digest(call), "id": call.id, "process": self.process, "at": time.time()}
        body = base64.urlsafe_b64encode(json.dumps({**state, **bound}).encode())
        return f"{body.decode()}.{hmac.new(self.key, body, hashlib.sha256).hexdigest()}"

    def _unsealed(self, sealed: Any) -> Json:
        body, _, mark = str(sealed).partition(".")
        if not hmac.compare_digest(hmac.new(self.key, body.encode(), hashlib.sha256).hexdigest(), mark):
            raise Refused("requestState is not what was given")
        return dict(json.loads(base64.urlsafe_b64decode(body)))

    # -- tasks and subscriptions

    def _begin_job(self, call: Call) -> Json:
        question = missing_capability(_declared(call), "elicitation/create", form(""))
        self._need(call, _missing_tasks(call), question if asks(call.arguments) else None)
        with self.moved:
            task_id = self.jobs.begin(call.arguments)
            seed = self.jobs.task(task_id)
        kept = {key: seed[key] for key in ("taskId", "createdAt", "ttlMs", "pollIntervalMs")}
        return {"resultType": "task", **kept, "status": "working", "lastUpdatedAt": seed["createdAt"]}

    def _task(self, call: Call, method: str) -> Json:
        self._need(call, _missing_tasks(call))
        task_id = call.params.get("taskId")
        with self.moved:
            if task_id not in self.jobs.records:
                raise Refused("Failed to retrieve task: Task not found")
            if method == "tasks/get":
                return self.jobs.task(task_id)
            if method == "tasks/cancel":
                self.jobs.cancel(task_id)
            else:
                self._update(task_id, call.params.get("inputResponses"))
            self.moved.notify_all()
        return {}

    def _update(self, task_id: str, responses: Any) -> None:
        if not isinstance(responses, dict):
            raise Refused("tasks/update needs inputResponses, an object")
        for key, answer in self.jobs.update(task_id, responses).items():
            self.answers.append({"tool": "task-job", "key": key, "result": answer})

    def _listen(self, call: Call) -> Json:
        """Tell what changes until the client no longer listens."""
        wanted = call.params.get("notifications")
        if not isinstance(wanted, dict):
            raise Refused("subscriptions/listen needs notifications, an object")
        if "taskIds" in wanted:
            self._need(call, _missing_tasks(call))
        ids = [task_id for task_id in wanted.get("taskIds", []) if task_id in self.jobs.records]
        honored: Json = {"toolsListChanged": True} if wanted.get("toolsListChanged") else {}
        honored |= {"taskIds": ids} if "taskIds" in wanted else {}
        meta = {"_meta": {META + "subscriptionId": call.id}}
        asked = [self.jobs.records[task_id]["arguments"] for task_id in ids]
        time.sleep(max((one.get("unheard_seconds", 0) for one in asked), default=0))
        with self.moved:
            tasks, grown = {task_id: self.jobs.task(task_id) for task_id in ids}, self.grown
        call.notify("notifications/subscriptions/acknowledged", {**meta, "notifications": honored})
        while True:
            # A job's state moves with the clock, so that nothing tells of it.
            self.until(call, lambda known=grown: self.grown != known, 0.01 if ids else None)
            if self.grown != grown and honored.get("toolsListChanged"):
                call.notify("notifications/tools/list_changed", meta)
            grown = self.grown
            for task_id in ids:
                with self.moved:
                    task = self.jobs.task(task_id)
                if task != tasks[task_id]:
                    call.notify("notifications/tasks", {**meta, **task})
                    tasks[task_id] = task


def _count(call: Call) -> int:
    """How many rounds a call takes; with more `times` than rounds the last one is repeated."""
    rounds = ROUNDS.get(call.tool, [{}])
    return int(call.arguments.get("times", 1)) if call.tool in ("ask-url", "state-only") else len(rounds)


def _open(call: Call, state: Json) -> dict[str, Json]:
    """What the round that a state is in still has to ask."""
    number = state["round"]
    if number >= _count(call):
        return {}
    if call.tool == "ask-again":
        return _again(state)
    rounds = ROUNDS[call.tool]
    asked = rounds[min(number, len(rounds) - 1)]
    if "connect" in asked:
        asked = {**asked, "connect": _elicit(url_of(state["connect"]))}
    return {key: one for key, one in asked.items() if f"{number}:{key}" not in state["answers"]}


def _is_over(call: Call, state: Json) -> bool:
    """After the last round; or once one was not accepted, as soon as its other questions are answered."""
    if state["round"] >= _count(call):
        return True
    is_declined = any(one.get("action", "accept") != "accept" for one in state["answers"].values())
    return is_declined and (state["round"] > 0 or call.tool == "ask-again")


def _words(answers: Json) -> str:
    return "; ".join(map(shown, answers.values())) or "done"


def _again(state: Json) -> dict[str, Json]:
    """What ask-again still has to know: each form has only the fields that no answer gave."""
    known = {name for answer in state["answers"].values() for name in answer.get("content") or {}}
    missing = [name for name in ("name", "color") if name not in known]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in missing}, "required": []}
    asked = _elicit(form(f"Still missing: {', '.join(missing)}", schema))
    return {f"missing-{len(state['answers'])}": asked} if missing else {}


def _digest(call: Call) -> str:
    salient = json.dumps([call.tool, call.arguments], sort_keys=True)
    return hashlib.sha256(salient.encode()).hexdigest()


def _declared(call: Call) -> Json:
    return dict(call.params["_meta"][META + "clientCapabilities"])


def _missing_tasks(call: Call) -> Json | None:
    return None if TASKS in _declared(call).get("extensions", {}) else {"extensions": {TASKS: {}}}


def _cached() -> Json:
    return {"ttlMs": 0, "cacheScope": "private"}


def _decoded(value: str | None) -> str | None:
    """A header's value; what is no plain ASCII comes as base64 between `=?base64?` and `?=`."""
    if value is not None and value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value
