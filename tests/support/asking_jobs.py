"""The jobs of the asking server's modern era: what state a task is in, from its beginning and its answers.

A job is a record of JSON: what was asked of it, when it began, what it was answered and when. Its state at
any moment is a function of that record, so a job needs no thread and outlives its process in a file.

steps      how many, of `seconds` each           fail        `tool` or `protocol`, at its end
ask        a form after the first step           cancel_itself  at its end
ask_two    two forms at once, after it           never       goes on after its last step for ever
ask_twice  a form after each of two steps        poll_ms     what it says of polling
stubborn   takes no notice of tasks/cancel       unheard_seconds  until a subscription to it counts
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asking_shapes import Json, check_answer, field_form, stamp, text

TERMINAL = ("completed", "failed", "cancelled")
TTL_MS = 3_600_000


@dataclass
class Jobs:
    """All jobs, in a file when there is one."""

    path: Path | None = None
    records: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.records = json.loads(self.path.read_text())

    def begin(self, arguments: Json) -> str:
        """A new job, kept before its id is told to anyone."""
        task_id = str(uuid.uuid4())
        self.records[task_id] = {"arguments": arguments, "began": time.time(), "answers": {}}
        self._keep()
        return task_id

    def task(self, task_id: str) -> Json:
        """A job as tasks/get shows it now."""
        return {"taskId": task_id, **_state(self.records[task_id], time.time())}

    def update(self, task_id: str, responses: Json) -> Json:
        """Take the answers to what is open now, and give them; others are of no interest."""
        open_requests = self.task(task_id).get("inputRequests", {})
        taken = {key: answer for key, answer in responses.items() if key in open_requests}
        for key, answer in taken.items():
            check_answer(open_requests[key]["method"], open_requests[key]["params"], answer)
        for key, answer in taken.items():
            self.records[task_id]["answers"][key] = {"answer": answer, "at": time.time()}
        self._keep()
        return taken

    def cancel(self, task_id: str) -> None:
        """Cancel a job that still runs and is not stubborn."""
        record = self.records[task_id]
        if self.task(task_id)["status"] not in TERMINAL and not record["arguments"].get("stubborn"):
            record["cancelled"] = time.time()
            self._keep()

    def _keep(self) -> None:
        if self.path is not None:
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(self.records))
            beside.replace(self.path)


def asks(arguments: Json) -> bool:
    """Whether a job will ask anything."""
    return bool(_rounds(arguments))


def _rounds(arguments: Json) -> list[dict[str, Json]]:
    """What is asked after the first step, after the second, and so on; no key appears twice."""
    if arguments.get("ask_twice"):
        return [{"first-1": field_form("first")}, {"second-2": field_form("second")}]
    if arguments.get("ask_two"):
        return [{"first-1": field_form("first"), "second-1": field_form("second")}]
    return [{"name-1": field_form("name")}] if arguments.get("ask") else []


def _state(record: Json, now: float) -> Json:
    arguments = record["arguments"]
    task = {"createdAt": stamp(record["began"]), "ttlMs": TTL_MS}
    task["pollIntervalMs"] = int(arguments.get("poll_ms", 20))
    if "cancelled" in record:
        when = stamp(record["cancelled"])
        return {**task, "status": "cancelled", "statusMessage": "cancelled", "lastUpdatedAt": when}
    rounds, seconds = _rounds(arguments), float(arguments.get("seconds", 0.05))
    steps = max(int(arguments.get("steps", 2)), len(rounds))
    clock = record["began"]
    for step in range(1, steps + 1):
        if now < clock + seconds:
            return {
                **task,
                "status": "working",
                "statusMessage": f"step {step}",
                "lastUpdatedAt": stamp(clock),
            }
        clock += seconds
        asked = rounds[step - 1] if step <= len(rounds) else {}
        if asking := {key: params for key, params in asked.items() if key not in record["answers"]}:
            requests = {key: {"method": "elicitation/create", "params": asking[key]} for key in asking}
            since = [record["answers"][key]["at"] for key in asked if key in record["answers"]]
            state = {"status": "input_required", "inputRequests": requests}
            return {**task, **state, "lastUpdatedAt": stamp(max([clock, *since]))}
        clock = max([clock, *(record["answers"][key]["at"] for key in asked)])
    return {**task, "lastUpdatedAt": stamp(clock), **_end(arguments, steps, record["answers"])}


def _end(arguments: Json, steps: int, answers: dict[str, Any]) -> Json:
    if arguments.get("never"):
        return {"status": "working", "statusMessage": f"step {steps}"}
    if arguments.get("cancel_itself"):
        return {"status": "cancelled", "statusMessage": "the server gave it up"}
    if arguments.get("fail") == "protocol":
        error = {"code": -32603, "message": "the job broke"}
        return {"status": "failed", "statusMessage": "the job broke", "error": error}
    if arguments.get("fail"):
        return {"status": "completed", "result": text("the job failed", isError=True)}
    said = "".join(f"; {key}: {shown(one['answer'])}" for key, one in answers.items())
    return {"status": "completed", "result": text(f"{steps} steps{said}")}


def shown(answer: Json) -> str:
    """An answer in words: `accept {"name": "Ada"}`, the action alone, or all of it."""
    if "action" not in answer:
        return json.dumps(answer)
    return (
        f"{answer['action']} {json.dumps(answer['content'])}"
        if "content" in answer
        else str(answer["action"])
    )
