"""What workers tell each other of a tool server that one of them runs, as JSON: states, calls, questions and faults.

A link is for one thing: to hear the state of a server, to keep a session open, one call, one request, or the news of
one task. The asking worker names it in its first frame, beside the secret that all workers have of their supervisor.
When either end closes the link, the thing ends; so a worker that dies takes nothing with it but its own part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from bridge import trace
from bridge.errors import BridgeError, BusyError, PeerError, UsageError
from bridge.mcp.client.call_queue import Claimant, DisplacedError, SlotHold
from bridge.mcp.client.contract import DescribedServer
from bridge.mcp.client.faults import NotTakenError, ServerDownError, ServerLostError, ServerRefusedError
from bridge.mcp.client.values import Greeting, ToolListing
from bridge.mcp.tools import SchemaBudget, UnservableTool, tools_from
from bridge.text.jsonvalues import JsonObject
from bridge.trace import Hop

_FAULTS: Final[Mapping[str, type[BridgeError]]] = {
    kind.__name__: kind
    for kind in (
        ServerDownError,
        NotTakenError,
        ServerLostError,
        DisplacedError,
        BusyError,
        PeerError,
        UsageError,
    )
}
"""The faults that keep their kind on the way; another one becomes the nearest of its kinds that is here."""

_OF_ASKER: Final = ("face", "principal", "is_authenticated", "task_id")
"""What the hop to a server has of the request that it follows from, see `Hops.sent`."""


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Whose session with a server is meant, and which of those that these callers share."""

    principal: str = ""
    context_id: str = ""
    number: int = 0


def opening(secret: str, server: str, login_config: str, place: SessionPlace, more: JsonObject) -> JsonObject:
    """The first frame of a link. The trace of the request goes with it, and who asks, if somebody listens to hops."""
    taken = trace.hop.get()
    return {
        "secret": secret,
        "server": server,
        "wish": login_config,
        "place": asdict(place),
        "call_id": trace.call_id.get(),
        "trace": asdict(trace.context.get()),
        **({} if taken is None else {"asked": {name: getattr(taken, name) for name in _OF_ASKER}}),
        **more,
    }


def take_trace_of(frame: Mapping[str, Any]) -> None:
    """Go on with the trace of the request that a first frame is about, for the one who asks there."""
    trace.call_id.set(frame["call_id"])
    trace.context.set(trace.TraceContext(**frame["trace"]))
    asked = frame.get("asked")
    # The worker that took the request listens to its hop; here it only names whose the hop to the server is.
    trace.hop.set(None if asked is None else Hop("server", "mcp", (), trace.context.get(), **asked))


def fault_frame(fault: BridgeError) -> JsonObject:
    """A fault, to be raised in the worker that asks."""
    if isinstance(fault, ServerRefusedError):
        return {"refused": {"code": fault.code, "message": str(fault), "data": fault.data}}
    kind = next((one.__name__ for one in type(fault).__mro__ if one.__name__ in _FAULTS), "PeerError")
    return {"fault": {"kind": kind, "message": str(fault), "detail": fault.detail}}


def fault_in(frame: Mapping[str, Any]) -> BridgeError | None:
    """The fault that a frame tells of, if it does."""
    if (refused := frame.get("refused")) is not None:
        return ServerRefusedError(refused["code"], refused["message"], refused["data"])
    if (fault := frame.get("fault")) is not None:
        return _FAULTS[fault["kind"]](fault["message"], detail=fault["detail"])
    return None


def hold_frame(hold: SlotHold) -> JsonObject:
    """A hold that a waiting call is told of."""
    return {
        "held": asdict(hold.caller),
        "ends": None if hold.ends_in_seconds == math.inf else hold.ends_in_seconds,
    }


def hold_in(frame: Mapping[str, Any]) -> SlotHold:
    """The same hold."""
    ends = frame["ends"]
    return SlotHold(Claimant(**frame["held"]), math.inf if ends is None else ends)


@dataclass(frozen=True, slots=True)
class ServerState:
    """What is known of a server beside its calls."""

    listing: ToolListing
    greeting: Greeting | None
    down: str | None


def state_frame(server: DescribedServer) -> JsonObject:
    """The state of a server. Tools go as the server listed them."""
    return {
        "tools": [tool.listed for tool in server.listing.tools],
        "left_out": [[one.name, one.reason] for one in server.listing.left_out],
        "odd": server.listing.odd,
        "greeting": None if server.greeting is None else asdict(server.greeting),
        "down": server.down,
    }


def state_in(frame: Mapping[str, Any], schema_values: int) -> ServerState:
    """The same state. The schemas are compiled anew, within the same bound."""
    tools, faulty = tools_from(frame["tools"], SchemaBudget(schema_values))
    left_out = tuple(UnservableTool(name, reason) for name, reason in frame["left_out"])
    greeting = frame["greeting"]
    return ServerState(
        ToolListing(tools, left_out + faulty, frame["odd"]),
        None if greeting is None else Greeting(**greeting),
        frame["down"],
    )
