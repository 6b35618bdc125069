"""Whose fault an error is, and how the faces tell it."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import bridge
from bridge.a2a.model.errors import INVALID_PARAMS, OVERLOADED, a2a_error_of
from bridge.agents_as_tools.sending import Sending
from bridge.errors import (
    FAULT_POLICIES,
    BridgeError,
    BusyError,
    CallerError,
    OwnError,
    PeerError,
    StoreError,
    UsageError,
    fault_policy_of,
)
from bridge.mcp.client.call_queue import DisplacedError
from bridge.mcp.client.upstream import QueueFullError
from bridge.mcp.server.face import refusal_of
from bridge.seal import HandleError
from bridge.translate.call_to_message import BadArgumentsError

_BRANCHES = (OwnError, PeerError, CallerError)


def test_every_error_is_the_fault_of_one_side() -> None:
    found = {
        kind
        for module in pkgutil.walk_packages(bridge.__path__, "bridge.")
        if module.name != "bridge.__main__"
        for _, kind in inspect.getmembers(import_module(module.name), inspect.isclass)
        if issubclass(kind, BridgeError) and kind is not BridgeError
    }
    assert {DisplacedError, QueueFullError, HandleError, BadArgumentsError, StoreError} <= found
    assert [kind for kind in found if sum(issubclass(kind, branch) for branch in _BRANCHES) != 1] == []


def test_what_an_error_is_told_as_follows_from_whose_fault_it_is() -> None:
    rows = {
        BadArgumentsError("it is not"): FAULT_POLICIES[CallerError],
        HandleError(): FAULT_POLICIES[CallerError],
        QueueFullError("full"): FAULT_POLICIES[BusyError],
        DisplacedError("full"): FAULT_POLICIES[BusyError],
        UsageError("no such file"): FAULT_POLICIES[OwnError],
        StoreError("full"): FAULT_POLICIES[OwnError],
        PeerError("gone"): FAULT_POLICIES[PeerError],
    }
    assert {exc: fault_policy_of(exc) for exc in rows} == rows
    assert {kind: row.exit_code for kind, row in FAULT_POLICIES.items()} == {
        CallerError: 2,
        PeerError: 1,
        BusyError: 2,
        OwnError: 2,
    }


def test_a_full_queue_is_refused_with_when_to_come_again() -> None:
    refused = a2a_error_of(QueueFullError("tools is busy"))
    assert (refused.kind, str(refused), refused.headers) == (
        OVERLOADED,
        "tools is busy",
        {"Retry-After": "1"},
    )


def test_what_the_caller_did_wrong_is_no_internal_error() -> None:
    exc = BadArgumentsError("message: it is missing")
    assert (refusal_of(exc).code, a2a_error_of(exc).kind, a2a_error_of(exc).headers) == (
        -32602,
        INVALID_PARAMS,
        {},
    )
    assert (refusal_of(PeerError("gone")).code, refusal_of(OwnError("broken")).code) == (-32603, -32603)


async def test_a_mistake_of_the_bridge_is_not_told_as_the_agents() -> None:
    async def break_down(_: object) -> None:
        raise RuntimeError

    client: object = None
    sending = Sending(client, lambda _: None, None)  # type: ignore[arg-type]  # the work is all that is run
    await sending.run(break_down)  # type: ignore[arg-type]  # it gives nothing
    assert type(sending.fault) is OwnError
    assert str(sending.fault) == "The bridge failed to ask the agent; its log says why"
