"""A call in as many rounds as the server wants: a round may end with questions, or with a request for another round.

The caller decides who answers the questions, and when. If a call becomes a task, the rounds end, and the caller follows
the task.

Spec: MCP 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import anyio

from bridge.concurrency import Backoff
from bridge.mcp.client.elicitation_routing import elicitation_in
from bridge.mcp.client.roots import roots_asked_in
from bridge.mcp.client.values import ToolCall
from bridge.text.jsonvalues import JsonObject

StopT = TypeVar("StopT")
"""A value of the caller that ends the rounds without a result."""


@dataclass(frozen=True, slots=True)
class Round:
    """The questions at the end of a round."""

    questions: dict[str, JsonObject]
    """The params of each elicitation/create, by its key."""
    state: str | None
    """The `requestState`, which goes back to the server unchanged."""
    answers: dict[str, JsonObject] = field(default_factory=dict)
    """The answers that the bridge itself gives, by key. They go to the server with the answers to the questions."""


async def result_in_rounds(
    call: ToolCall,
    once: Callable[[ToolCall], Awaitable[JsonObject | StopT]],
    answers_to: Callable[[Round], Awaitable[JsonObject | StopT]],
    roots: Sequence[str] = (),
) -> JsonObject | StopT:
    """The result of a call, after all rounds.

    `once` sends one round. `answers_to` returns an ElicitResult for each question. Either may return a StopT, which
    ends the rounds and is returned. `roots` are the folders that the server may ask for, as file URIs.

    Raises:
        PeerError: a request of the server is not an elicitation.
        Exception: whatever `once` and `answers_to` raise.
    """
    pauses = Backoff(0.1, 10.0)
    while True:
        result = await once(call)
        if not isinstance(result, dict) or result.get("resultType") != "input_required":
            return result
        requests, state = result.get("inputRequests"), result.get("requestState")
        call = replace(call, input_responses=None, request_state=state if isinstance(state, str) else None)
        if not isinstance(requests, dict) or not requests:
            await anyio.sleep(pauses.next())
            continue
        own = roots_asked_in(requests, roots)
        questions = {key: elicitation_in(request) for key, request in requests.items() if key not in own}
        if not questions:
            call = replace(call, input_responses={**own})
            await anyio.sleep(pauses.next())
            continue
        answers = await answers_to(Round(questions, call.request_state, own))
        if not isinstance(answers, dict):
            return answers
        call = replace(call, input_responses={**own, **answers})
