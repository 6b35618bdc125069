"""Whose task it is, over gRPC in 1.0 and 0.3: tests of `test_principals.py` and `test_operators.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import product
from typing import Any

import pytest

from tests.a2a.server import test_principals
from tests.a2a.server.test_operators import (
    CELLS,
    CREDENTIALS,
    FORBIDDEN,
    MATRIX,
    NOT_FOUND,
    OVERRIDES,
    Desk,
    outcome,
)
from tests.a2a.server.test_principals import (
    ADD_ONE,
    ALICES,
    AUDIENCE,
    BOBS,
    BY_TASK,
    ISSUERS,
    OPERATIONS,
    SECRETS,
)
from tests.support.drivers import Driver
from tests.support.grpc_driver import GrpcDriver, OlderGrpcDriver, named_tests, new_channel, served_over_grpc
from tests.support.issuer import TokenIssuer, issuer_at
from tests.support.older_drivers import name_of
from tests.support.running import config_for, listening, raw_command, running

KINDS = (GrpcDriver, OlderGrpcDriver)
NOBODYS = "00000000-0000-7000-8000-000000000000"
WAYS = [(GrpcDriver, SECRETS), (OlderGrpcDriver, SECRETS), (GrpcDriver, ISSUERS)]

globals().update(
    named_tests(
        test_principals,
        "each_principal_lists_only_its_own_tasks",
        "a_page_token_of_someone_else_shows_nothing_of_theirs",
        "a_foreign_context_is_refused_and_keeps_its_owner",
        "an_own_task_does_not_open_a_foreign_context",
        "the_same_message_of_two_principals_makes_two_tasks",
        "an_own_task_is_reached_by_every_operation",
    )
)

Doors = Mapping[str, tuple[int, str, str]]
"""The port of an agent, and the tokens of its two callers, by what tells them apart."""


@pytest.fixture(scope="module")
async def doors() -> AsyncIterator[Doors]:
    issuers = {"corp": TokenIssuer(""), "partner": TokenIssuer("")}
    async with AsyncExitStack() as stack:
        for issuer in issuers.values():
            issuer.url = await stack.enter_async_context(listening(issuer))
        audiences = {"agent": frozenset({AUDIENCE})}
        trusted = {name: issuer_at(issuer.url, audiences, name=name) for name, issuer in issuers.items()}
        ports = []
        for how in ({"credentials": test_principals.CREDENTIALS}, {"name": "agent", "issuers": trusted}):
            config = config_for(raw_command(), store="memory:", **how)
            bridge = await stack.enter_async_context(running(config))
            server = await stack.enter_async_context(served_over_grpc(bridge.bridge.whole))
            ports.append(server.port)
        tokens = [issuer.token(AUDIENCE, "ada") for issuer in issuers.values()]
        yield {SECRETS: (ports[0], ALICES, BOBS), ISSUERS: (ports[1], tokens[0], tokens[1])}


@pytest.fixture(params=WAYS, ids=lambda way: f"{name_of(way[0])}-{way[1]}")
async def callers(request: pytest.FixtureRequest, doors: Doors) -> AsyncIterator[tuple[Driver, str, str]]:
    """A client without a token, and both tokens."""
    kind, way = request.param
    port, *tokens = doors[way]
    async with new_channel(port) as channel:
        yield kind(channel), tokens[0], tokens[1]


@pytest.fixture
def alice(callers: tuple[Driver, str, str]) -> Driver:
    return callers[0].with_headers(Authorization=f"Bearer {callers[1]}")


@pytest.fixture
def bob(callers: tuple[Driver, str, str]) -> Driver:
    return callers[0].with_headers(Authorization=f"bearer  {callers[2]}")


@pytest.mark.proves("web-auth", "a2a-3.3.2-authentication", "a2a-7.4-authenticated")
async def test_without_a_known_token_every_operation_is_refused(
    callers: tuple[Driver, str, str], alice: Driver
) -> None:
    stranger, token, _ = callers
    task = await alice.send(ADD_ONE)
    shown = (
        None,
        "Bearer",
        "Bearer wrong",
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
        f"Basic {token}",
        token,
    )
    for (operation, params), said in product(OPERATIONS, shown):
        caller = stranger if said is None else stranger.with_headers(Authorization=said)
        fault = await caller.refused(operation, **params(task["id"]))
        assert (fault.reason, fault.code) == ("UNAUTHENTICATED", 16), operation
        assert task["id"] not in str(fault), operation
    assert await alice.get(task["id"]) == task


@pytest.mark.proves("a2a-13.1-scope", "a2a-3.3.2-unrevealed", "a2a-3.3.2-not-found")
async def test_a_missing_task_and_a_foreign_task_get_equal_answers(alice: Driver, bob: Driver) -> None:
    foreign = await alice.send(ADD_ONE)
    for operation, params in BY_TASK:
        theirs, nobodys = [
            await bob.refused(operation, **params(task_id)) for task_id in (foreign["id"], NOBODYS)
        ]
        assert str(theirs).replace(foreign["id"], NOBODYS) == str(nobodys), operation
    assert await alice.get(foreign["id"]) == foreign


# Operators


@pytest.fixture(scope="module")
async def operated() -> AsyncIterator[int]:
    config = config_for(raw_command(), store="memory:", credentials=CREDENTIALS, overrides=OVERRIDES)
    async with running(config) as bridge, served_over_grpc(bridge.bridge.whole) as server:
        yield server.port


class GrpcDesk(Desk):
    """The callers of a bridge, each as a client over gRPC."""

    def __init__(self, kind: type[Driver], channel: Any) -> None:
        self._plain = kind(channel, "")


@pytest.mark.proves("ops-role", "a2a-13.1-scope")
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
async def test_which_operations_a_role_allows_on_the_task_of_another(
    kind: type[Driver], operated: int
) -> None:
    async with new_channel(operated) as channel:
        desk = GrpcDesk(kind, channel)
        for operation, caller, expected in CELLS:
            task = await desk.waiting()
            params = MATRIX[operation][0](task["id"])
            plain, acting = getattr(desk, caller), desk.acting(caller)
            for driver, reason in ((plain, NOT_FOUND), (acting, expected)):
                if reason is None:
                    assert await outcome(driver, operation, params) is None
                else:
                    assert (await driver.refused(operation, **params)).reason == reason
            assert expected in (None, NOT_FOUND, FORBIDDEN)
            if expected is not None:
                assert await desk.alice.get(task["id"]) == task
