"""Whose task it is when callers are told apart by tokens of an issuer: the same matrix as with secrets of the file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx2
import pytest

from tests.a2a.server.test_principals import (
    ECHO,
    test_a_foreign_context_is_refused_and_keeps_its_owner,
    test_a_missing_task_and_a_foreign_task_get_byte_equal_answers,
    test_a_page_token_of_someone_else_shows_nothing_of_theirs,
    test_a_task_of_someone_else_is_not_found_in_any_generation,
    test_a_token_is_required_before_the_request_is_examined,
    test_an_own_task_does_not_open_a_foreign_context,
    test_an_own_task_is_reached_by_every_operation,
    test_each_principal_lists_only_its_own_tasks,
    test_the_same_message_of_two_principals_makes_two_tasks,
)
from tests.support.drivers import Driver, new_client
from tests.support.first_driver import FirstDriver
from tests.support.issuer import TokenIssuer, issuer_at
from tests.support.older_drivers import EVERY_DRIVER, name_of
from tests.support.running import Running, config_for, listening, raw_command, running

pytestmark = pytest.mark.smoke("JSONRPC*", "HTTP+JSON*")

__all__ = [
    "test_a_foreign_context_is_refused_and_keeps_its_owner",
    "test_a_missing_task_and_a_foreign_task_get_byte_equal_answers",
    "test_a_page_token_of_someone_else_shows_nothing_of_theirs",
    "test_a_task_of_someone_else_is_not_found_in_any_generation",
    "test_a_token_is_required_before_the_request_is_examined",
    "test_an_own_task_does_not_open_a_foreign_context",
    "test_an_own_task_is_reached_by_every_operation",
    "test_each_principal_lists_only_its_own_tasks",
    "test_the_same_message_of_two_principals_makes_two_tasks",
]

AUDIENCE = "api://raw"


@dataclass
class Trusting:
    """A bridge, and the issuers that it trusts."""

    running: Running
    corp: TokenIssuer
    partner: TokenIssuer


@pytest.fixture(scope="module")
async def trusting() -> AsyncIterator[Trusting]:
    async with AsyncExitStack() as stack:
        issuers = {name: TokenIssuer("") for name in ("corp", "partner")}
        for issuer in issuers.values():
            issuer.url = await stack.enter_async_context(listening(issuer))
        audiences = {"raw": frozenset({AUDIENCE})}
        trusted = {name: issuer_at(one.url, audiences, name=name) for name, one in issuers.items()}
        config = config_for(raw_command(), name="raw", issuers=trusted)
        bridge = await stack.enter_async_context(running(config))
        yield Trusting(bridge, issuers["corp"], issuers["partner"])


@pytest.fixture(scope="module")
async def bridge(trusting: Trusting) -> Running:
    return trusting.running


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with new_client() as client:
        yield client


@pytest.fixture(params=(*EVERY_DRIVER, FirstDriver), ids=name_of)
def stranger(request: pytest.FixtureRequest, bridge: Running, client: httpx2.AsyncClient) -> Driver:
    """A client without a token."""
    return request.param(client, bridge.base_url)


@pytest.fixture
def alice(stranger: Driver, trusting: Trusting) -> Driver:
    return stranger.with_headers(Authorization=f"Bearer {trusting.corp.token(AUDIENCE, 'alice')}")


@pytest.fixture(params=["another subject", "another issuer"])
def bob(request: pytest.FixtureRequest, stranger: Driver, trusting: Trusting) -> Driver:
    """Somebody else than Alice: of her issuer, or who has her subject at another one."""
    if request.param == "another subject":
        token = trusting.corp.token(AUDIENCE, "bob")
    else:
        token = trusting.partner.token(AUDIENCE, "alice")
    return stranger.with_headers(Authorization=f"Bearer {token}")


@pytest.mark.proves("a2a-13.1-scope", "oauth-jwt")
async def test_the_same_subject_of_another_issuer_is_another_principal(
    stranger: Driver, alice: Driver, trusting: Trusting
) -> None:
    task = await alice.send(ECHO)
    token = trusting.partner.token(AUDIENCE, "alice")
    other = stranger.with_headers(Authorization=f"Bearer {token}")
    assert (await other.refused("GetTask", id=task["id"])).reason == "TASK_NOT_FOUND"
    later = stranger.with_headers(Authorization=f"Bearer {trusting.corp.token(AUDIENCE, 'alice', jti='2')}")
    assert await later.get(task["id"]) == task
