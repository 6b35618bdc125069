"""A script of an agent that asks which day in the middle, and books whatever it is told."""

from __future__ import annotations

from typing import Final

from tests.support.running import EXTENSION
from tests.support.scripted_agent import Json

APPROVAL: Final = {"type": "object", "properties": {"approved": {"type": "boolean"}}}
"""A form that can say no."""


class Books:
    """Books whatever it is told: every message to its waiting task is taken for the day."""

    def __init__(
        self, *asks: Json, state: str = "INPUT_REQUIRED", canceled: str = "yes", key: str | None = None
    ) -> None:
        """`canceled` is "yes", "refused", "late" where the task ends first, or "pending". `key` is the question's key,
        by the bridge's extension."""
        named = {"metadata": {f"{EXTENSION}/question": key}} if key else {}
        self.task = _task(state, _says("q-1", *(asks or ({"text": "Which day?"},))) | named)
        self.canceled = canceled
        self.said: list[Json] = []
        self.cancels = 0

    def __call__(self, method: str, params: Json) -> list[Json]:
        if method == "CancelTask":
            return [self._cancel()]
        if method != "GetTask" and "message" in params:
            self.said.append(params["message"])
            if params["message"].get("taskId"):
                self.task = _task(
                    "COMPLETED", _says("done", {"text": f"Booked: {params['message']['parts']}"})
                )
        return [self.task if method == "GetTask" else {"task": self.task}]

    def _cancel(self) -> Json:
        self.cancels += 1
        if self.canceled == "yes":
            self.task = _task("CANCELED", _says("bye", {"text": "Not booked."}))
        if self.canceled == "late":
            self.task = _task("COMPLETED", _says("done", {"text": "It was free anyway."}))
        if self.canceled in ("refused", "late"):
            return {"error": {"code": -32002, "message": "No way"}}
        return self.task


def _task(state: str, message: Json) -> Json:
    return {"id": "t-1", "contextId": "c-1", "status": {"state": f"TASK_STATE_{state}", "message": message}}


def _says(message_id: str, *parts: Json) -> Json:
    return {"messageId": message_id, "role": "ROLE_AGENT", "parts": [*parts]}
