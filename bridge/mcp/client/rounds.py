"""One call in as many rounds as the server wants: it may end a call with questions, or only ask to be called again.

Who is asked, and when, is for whoever calls; so is a call that the server made a task of, which ends the rounds.

Spec: MCP 2026-07-28 basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import anyio

from bridge.backoff import Backoff
from bridge.jsonvalues import JsonObject
from bridge.mcp.client.elicitation_routing import elicitation_in
from bridge.mcp.client.values import ToolCall

StopT = TypeVar("StopT")
"""What ends the rounds before there is a result."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a server asks before it goes on."""

    questions: dict[str, JsonObject]
    """The params of each elicitation/create, by its key."""
    state: str | None
    """What the server is given back with the answers, exactly."""


async def result_in_rounds(
    call: ToolCall,
    once: Callable[[ToolCall], Awaitable[JsonObject | StopT]],
    answers_to: Callable[[Round], Awaitable[JsonObject | StopT]],
) -> JsonObject | StopT:
    """What a call gives once the server wants no further round. `answers_to` gives an ElicitResult for each question.

    Raises:
        PeerError: what it asks cannot be passed on; or what the functions raise.
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
        questions = {key: elicitation_in(request) for key, request in requests.items()}
        answers = await answers_to(Round(questions, call.request_state))
        if not isinstance(answers, dict):
            return answers
        call = replace(call, input_responses=answers)
