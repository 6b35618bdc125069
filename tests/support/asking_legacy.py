"""The asking server in 2025-11-25: it sends its own requests while a call runs, and has tasks with a result.

A question goes out on the stream of the call that it belongs to. Its ids count from 1, as those of a client
may: the two directions have nothing to do with each other.
"""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

from asking_jobs import TERMINAL, shown
from asking_shapes import (
    METHOD_NOT_FOUND,
    SAMPLING,
    AskingServer,
    Call,
    Json,
    Refused,
    Stopped,
    added,
    check_answer,
    field_form,
    form,
    missing_capability,
    stamp,
    sure_form,
    text,
    tool,
    url_of,
)

VERSION = "2025-11-25"
RELATED_TASK = "io.modelcontextprotocol/related-task"
URL_ELICITATION_REQUIRED = -32042
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "logging": {},
    "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}},
}
JOB = {"steps": "integer", "seconds": "number", "ask": "boolean", "fail": "boolean"}
TOOLS: list[Json] = [
    tool("ask", annotations={"readOnlyHint": True}),
    tool("ask-unsafe", annotations={"readOnlyHint": False, "destructiveHint": True}),
    tool("ask-one"),
    tool("ask-twice"),
    tool("ask-url"),
    tool("need-url", times="integer"),
    tool("ask-withdraw", seconds="number"),
    tool("ask-both"),
    tool("ask-progress"),
    tool("ask-noisy"),
    tool("sample"),
    tool("roots"),
    tool("echo", required="text", text="string"),
    tool("add", required="a b", a="number", b="number"),
    tool("wait"),
    tool("cancelled"),
    tool("pending"),
    tool("answers"),
    tool("requests"),
    tool("log"),
    tool("grow"),
    tool("forget"),
    {**tool("job", **JOB), "execution": {"taskSupport": "required"}},
    {**tool("optional-job", **JOB), "execution": {"taskSupport": "optional"}},
]
TASK_SUPPORT = {one["name"]: one.get("execution", {}).get("taskSupport", "forbidden") for one in TOOLS}


@dataclass(eq=False)
class Session:
    """What one client said of itself."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    capabilities: Json | None = None
    is_ready: bool = False
    used_ids: set[Any] = field(default_factory=set)


@dataclass(eq=False)
class Question:
    """A request of the server's own that has no answer yet, or has one now."""

    id: int
    tool: str
    method: str
    params: Json
    answer: Json | None = None
    """The response as it came, without its id."""


@dataclass(eq=False)
class Job:
    """A task of 2025-11-25; a thread of its own works on it."""

    arguments: Json
    ttl: int | None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "working"
    words: str = "step 1"
    created: str = field(default_factory=stamp)
    updated: str = field(default_factory=stamp)
    params: Json | None = None
    """What it has to ask, as long as nobody is asked."""
    answer: Json | None = None
    outcome: Json | None = None
    """`result` or `error`, as the call without a task would have had it."""

    def shown(self) -> Json:
        times = {"createdAt": self.created, "lastUpdatedAt": self.updated, "ttl": self.ttl}
        state = {"taskId": self.id, "status": self.status, "statusMessage": self.words}
        return {**state, **times, "pollInterval": 20}

    def move(self, status: str, words: str) -> None:
        self.status, self.words, self.updated = status, words, stamp()


@dataclass
class Legacy(AskingServer):
    """The era's server. `sessions` are those of HTTP; over stdio there is one, which needs no name."""

    sessions: dict[str, Session] = field(default_factory=dict)
    questions: dict[int, Question] = field(default_factory=dict)
    asked: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    refusals: int = 0
    """How often need-url refused since it last was connected."""

    def answer(self, call: Call) -> Json:
        method = call.message["method"]
        self._check(call, method)
        match method:
            case "initialize":
                return self._initialize(call)
            case "ping" | "logging/setLevel":
                return {}
            case "tools/list":
                return {"tools": [*TOOLS, *self.grown_tools()]}
            case "tools/call":
                return self._call(call)
            case "tasks/get":
                return self._job(call).shown()
            case "tasks/result":
                return self._task_result(call)
            case "tasks/cancel":
                return self._task_cancel(call)
        raise Refused("Method not found", METHOD_NOT_FOUND)

    def _check(self, call: Call, method: str) -> None:
        session: Session = call.session
        if call.id in session.used_ids:
            raise Refused(f"the id {call.id!r} was used before in this session")
        session.used_ids.add(call.id)
        if method == "initialize" and session.capabilities is not None:
            raise Refused("this session was initialized before")
        if method not in ("initialize", "ping") and not session.is_ready:
            raise Refused("initialize, then notifications/initialized, come before anything else")

    def _initialize(self, call: Call) -> Json:
        params = call.params
        info = params.get("clientInfo")
        kinds = (("protocolVersion", str), ("capabilities", dict))
        if not all(isinstance(params.get(key), kind) for key, kind in kinds):
            raise Refused("initialize needs a protocolVersion and capabilities")
        if not isinstance(info, dict) or not {"name", "version"} <= set(info):
            raise Refused("initialize needs a clientInfo with name and version")
        call.session.capabilities = params["capabilities"]
        info = {"name": "asking", "title": "Asking Server", "version": "1.0.0"}
        return {"protocolVersion": VERSION, "capabilities": CAPABILITIES, "serverInfo": info}

    def notice(self, session: Session, message: Json) -> None:
        if message["method"] == "notifications/initialized":
            session.is_ready = session.capabilities is not None
        super().notice(session, message)

    def receive(self, session: Session, message: Json) -> None:
        """An answer of the client to a question."""
        said = {key: value for key, value in message.items() if key in ("result", "error")}
        with self.moved:
            question = self.questions.pop(message.get("id"), None)
            kept: Json = {"unasked": message.get("id")}
            if question is not None:
                kept = {"tool": question.tool, "method": question.method}
            self.answers.append({**kept, **said})
            if question is not None:
                question.answer = said
            self.moved.notify_all()

    # -- questions

    def _ask(self, call: Call, *many: Json, method: str = "elicitation/create") -> list[Json]:
        """Ask at the same time, each on the stream of the call, and wait for all answers."""
        questions = [self._send_question(call, params, method) for params in many]
        try:
            self.until(call, lambda: all(question.answer is not None for question in questions))
        finally:
            self._withdraw(call, *questions)
        return [self._checked(question) for question in questions]

    def _send_question(self, call: Call, params: Json, method: str) -> Question:
        if missing := missing_capability(call.session.capabilities, method, params):
            raise _undeclared(missing)
        with self.moved:
            self.asked += 1
            question = Question(self.asked, call.tool or "tasks/result", method, params)
            self.questions[question.id] = question
        call.send({"id": question.id, "method": method, "params": params})
        return question

    def _withdraw(self, call: Call, *questions: Question) -> None:
        """What is still open is no longer of interest."""
        for question in questions:
            if self.questions.pop(question.id, None) is not None:
                reason = {"requestId": question.id, "reason": "went on without an answer"}
                call.notify("notifications/cancelled", reason)

    def _checked(self, question: Question) -> Json:
        assert question.answer is not None
        if "error" in question.answer:
            return question.answer
        check_answer(question.method, question.params, question.answer.get("result"))
        result: Json = question.answer["result"]
        return result

    # -- tools

    def _call(self, call: Call) -> Json:
        support = TASK_SUPPORT.get(call.tool, "forbidden")
        has_task = "task" in call.params
        if has_task and support == "forbidden":
            raise Refused(f"{call.tool} cannot be called as a task", METHOD_NOT_FOUND)
        if not has_task and support == "required":
            raise Refused(f"{call.tool} has to be called as a task", METHOD_NOT_FOUND)
        if has_task:
            return self._begin_job(call)
        match call.tool:
            case "ask" | "ask-unsafe":
                return text(shown(*self._ask(call, form("Who are you?"))))
            case "ask-one":
                return text(shown(*self._ask(call, sure_form())))
            case "ask-twice":
                return self._ask_twice(call)
            case "ask-url":
                return text(shown(*self._ask(call, _url_params())))
            case "need-url":
                return self._need_url(call)
            case "ask-withdraw":
                return self._ask_withdraw(call)
            case "ask-both":
                answers = self._ask(call, field_form("first"), field_form("second"))
                return text("; ".join(map(shown, answers)))
            case "ask-progress":
                call.progress(1, 2, "before")
                (answer,) = self._ask(call, sure_form())
                call.progress(2, 2, "after")
                return text(shown(answer))
            case "ask-noisy":
                return self._ask_noisy(call)
            case "sample":
                return text(json.dumps(*self._ask(call, SAMPLING, method="sampling/createMessage")))
            case "roots":
                return text(json.dumps(*self._ask(call, {}, method="roots/list")))
            case "optional-job":
                return self._job_at_once(call)
        return self._plain_tool(call)

    def _plain_tool(self, call: Call) -> Json:
        match call.tool:
            case "echo":
                return text(str(call.arguments.get("text", "nothing")))
            case "add":
                return added(call.arguments)
            case "wait":
                self.until(call, lambda: False)
            case "cancelled":
                return text(str(self.cancelled))
            case "pending":
                return text(str(len(self.questions)))
            case "answers":
                return text(json.dumps(self.answers))
            case "requests":
                return text(json.dumps(self.requests))
            case "log":
                call.notify("notifications/message", {"level": "info", "logger": "asking", "data": "a word"})
                return text("logged")
            case "grow":
                self.grown += 1
                call.notify("notifications/tools/list_changed", {})
                return text("grown")
            case "forget":
                self.sessions.clear()
                return text("forgotten")
            case name if name in [one["name"] for one in self.grown_tools()]:
                return text(f"I am {name}")
        raise Refused(f"Unknown tool: {call.tool}")

    def _ask_twice(self, call: Call) -> Json:
        said = []
        for name in ("first", "second"):
            (answer,) = self._ask(call, field_form(name))
            said.append(shown(answer))
            if answer.get("action") != "accept":
                break
        return text("; ".join(said))

    def _need_url(self, call: Call) -> Json:
        if self.refusals >= call.arguments.get("times", 1):
            self.refusals = 0
            return text("connected")
        params = _url_params()
        if missing := missing_capability(call.session.capabilities, "elicitation/create", params):
            raise _undeclared(missing)
        self.refusals += 1
        words = "This request requires more information."
        raise Refused(words, URL_ELICITATION_REQUIRED, {"elicitations": [params]})

    def _ask_withdraw(self, call: Call) -> Json:
        question = self._send_question(call, field_form("name"), "elicitation/create")
        seconds = call.arguments.get("seconds", 0.2)
        try:
            if self.until(call, lambda: question.answer is not None, seconds):
                return text(shown(self._checked(question)))
        finally:
            self._withdraw(call, question)
        return text("went on without an answer")

    def _ask_noisy(self, call: Call) -> Json:
        """Reports progress while its question is open."""
        question = self._send_question(call, sure_form(), "elicitation/create")
        call.progress(1, 2, "meanwhile")
        try:
            self.until(call, lambda: question.answer is not None)
        finally:
            self._withdraw(call, question)
        return text(shown(self._checked(question)))

    # -- tasks

    def _begin_job(self, call: Call) -> Json:
        task = call.params["task"]
        ttl = task.get("ttl") if isinstance(task, dict) else "none"
        if not isinstance(ttl, int | None) or isinstance(ttl, bool):
            raise Refused("task is an object; its ttl, if any, an integer")
        missing = missing_capability(call.session.capabilities, "elicitation/create", form(""))
        if call.arguments.get("ask") and missing:
            raise _undeclared(missing)
        job = Job(call.arguments, ttl)
        with self.moved:
            self.jobs[job.id] = job
            result = {"task": job.shown()}
        threading.Thread(target=self._work, args=(job,), daemon=True).start()
        return result

    def _work(self, job: Job) -> None:
        """A job from its first step to its end, which its cancellation brings earlier."""
        steps, seconds = int(job.arguments.get("steps", 2)), float(job.arguments.get("seconds", 0.05))
        with self.moved:
            for step in range(1, steps + 1):
                if job.status not in TERMINAL:
                    job.move("working", f"step {step}")
                    self.moved.notify_all()
                self.moved.wait_for(lambda: job.status in TERMINAL, seconds)
                if step == 1 and job.arguments.get("ask") and job.status not in TERMINAL:
                    job.params = {**field_form("name"), "_meta": _related(job)}
                    job.move("input_required", "a question")
                    self.moved.notify_all()
                    self.moved.wait_for(lambda: job.answer is not None or job.status in TERMINAL)
            if job.status not in TERMINAL:
                self._finish(job, steps)
            self.moved.notify_all()

    def _finish(self, job: Job, steps: int) -> None:
        said = f"; {shown(job.answer)}" if job.answer else ""
        if job.arguments.get("fail"):
            job.outcome = {"result": text("the job failed", isError=True)}
            return job.move("failed", "the job failed")
        job.outcome = {"result": text(f"{steps} steps{said}")}
        return job.move("completed", "done")

    def _job_at_once(self, call: Call) -> Json:
        """A job that is not called as a task asks on the stream of its call."""
        said = f"; {shown(*self._ask(call, field_form('name')))}" if call.arguments.get("ask") else ""
        steps = int(call.arguments.get("steps", 2))
        self.until(call, lambda: False, steps * float(call.arguments.get("seconds", 0.05)))
        if call.arguments.get("fail"):
            return text("the job failed", isError=True)
        return text(f"{steps} steps{said}")

    def _job(self, call: Call) -> Job:
        job = self.jobs.get(call.params.get("taskId", ""))
        if job is None:
            raise Refused("Failed to retrieve task: Task not found")
        return job

    def _task_result(self, call: Call) -> Json:
        job = self._job(call)
        while job.status not in TERMINAL:
            self.until(call, lambda: job.status in TERMINAL or job.params is not None)
            with self.moved:
                params, job.params = job.params, None
            if params is not None:
                self._ask_for(job, call, params)
        if job.outcome is None:
            raise Refused("the task was cancelled: it has no result")
        if "error" in job.outcome:
            error = job.outcome["error"]
            raise Refused(error["message"], error["code"])
        return {**job.outcome["result"], "_meta": _related(job)}

    def _ask_for(self, job: Job, call: Call, params: Json) -> None:
        """Ask what a job needs; when the call goes away the next tasks/result asks again."""
        question = self._send_question(call, params, "elicitation/create")
        try:
            self.until(call, lambda: question.answer is not None or job.status in TERMINAL)
        except Stopped:
            with self.moved:
                job.params = params if question.answer is None else None
            if question.answer is None:
                raise
        finally:
            self._withdraw(call, question)
        with self.moved:
            if question.answer is not None and job.status not in TERMINAL:
                self._take(job, question)
            self.moved.notify_all()

    def _take(self, job: Job, question: Question) -> None:
        try:
            answer = self._checked(question)
            if "error" not in answer and (answer.get("_meta") or {}).get(RELATED_TASK) != {"taskId": job.id}:
                raise Refused(f"an answer for a task carries {RELATED_TASK} in its _meta")
        except Refused as refused:
            job.outcome = {"error": refused.error}
            return job.move("failed", refused.error["message"])
        job.answer = answer
        return None

    def _task_cancel(self, call: Call) -> Json:
        job = self._job(call)
        with self.moved:
            if job.status in TERMINAL:
                raise Refused(f"Cannot cancel task: already in terminal status '{job.status}'")
            job.move("cancelled", "The task was cancelled by request.")
            self.moved.notify_all()
            return job.shown()


def _undeclared(missing: Json) -> Refused:
    words = "the client did not declare what is needed to ask it"
    return Refused(words, data={"requiredCapabilities": missing})


def _url_params() -> Json:
    elicitation_id = str(uuid.uuid4())
    return {**url_of(elicitation_id), "elicitationId": elicitation_id}


def _related(job: Job) -> Json:
    return {RELATED_TASK: {"taskId": job.id}}
