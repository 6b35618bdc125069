"""The hops of requests that are refused before the endpoint: each has a hop with the caller and the subject, if
known."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import AuditAwayError
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Access, Credential, verifiers_of
from bridge.trace import Hop, Hops
from tests.support.heard_hops import HeardHops
from tests.support.mcp_serving import wire_to
from tests.support.mcp_wire import LEGACY, MODERN, Json

ANN = Credential(Principal("ann"), "a" * 40)
SHOWN = {"authorization": f"Bearer {'a' * 40}"}


class AwayGate:
    """A gate that refuses every call."""

    async def intend(self, hop: Hop) -> int:
        """See `IntentWriter.intend`."""
        if hop.method == "tools/call":
            raise AuditAwayError("the disk is full")
        return 0


def told(heard: HeardHops) -> list[tuple[str, str, str, str]]:
    """The fields of the hops, without handshakes."""
    ended = [one for one in heard.ended_hops if one.method != "initialize"]
    return [(one.principal, one.method, one.skill, one.error) for one in ended]


def call(name: Any = "echo", arguments: Any = None) -> Json:
    """The params of a call."""
    return {"name": name, "arguments": {} if arguments is None else arguments}


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_malformed_call_has_a_hop_with_the_code_that_answers_it(version: str) -> None:
    heard = HeardHops()
    async with wire_to(version, hops=heard.hops) as (http, _):
        (answer,) = await http.call(1, "tools/call", call(arguments=[1]))
        assert answer["error"]["code"] == -32602
        if version == LEGACY:
            await http.call(2, "tools/call", {**call(), "_meta": 5})
    assert heard.begun == heard.ended_hops
    assert told(heard) == [("local", "tools/call", "", "-32602")] * (2 if version == LEGACY else 1)


async def test_a_message_that_is_too_large_has_a_hop_of_its_principal() -> None:
    heard = HeardHops()
    async with wire_to(
        MODERN, access=Access(verifiers_of([ANN])), hops=heard.hops, body_limit_bytes=2000
    ) as (
        http,
        _,
    ):
        large = http.message(1, "tools/call", call(arguments={"text": "x" * 3000}))
        many = http.message(2, "tools/call", call(arguments={"text": [0] * 900}))
        assert [(await http.post(one, **SHOWN)).status_code for one in (large, many)] == [413, 413]
    assert set(told(heard)) == {("ann", "", "", "HTTP_413")}
    assert len(heard.ended_hops) == 2


async def test_a_request_that_is_not_let_in_has_a_hop_of_its_principal_once_that_is_known() -> None:
    heard = HeardHops()
    async with wire_to(MODERN, access=Access(verifiers_of([ANN])), hops=heard.hops) as (http, face):
        message = http.message(1, "tools/call", call())
        as_text = {**http.headers(message), **SHOWN, "content-type": "text/plain"}
        foreign = {**http.headers(message), **SHOWN, "origin": "http://elsewhere.example"}
        assert face.server is not None
        answers = [
            await http.client.put(http.url, json=message, headers={**http.headers(message), **SHOWN}),
            await http.client.post(http.url, json=message, headers=as_text),
            await http.client.post(http.url, json=message, headers=foreign),
            await http.post(message, authorization="Bearer other"),
        ]
        face.server.stop()
        answers.append(await http.post(message, **SHOWN))
    assert [one.status_code for one in answers] == [405, 415, 403, 401, 503]
    assert told(heard) == [
        ("ann", "", "", "HTTP_405"),
        ("ann", "", "", "HTTP_415"),
        ("", "", "", "HTTP_403"),
        ("", "", "", "HTTP_401"),
        ("ann", "", "", "HTTP_503"),
    ]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_call_that_cannot_be_written_down_has_a_hop(version: str) -> None:
    heard = HeardHops()
    async with wire_to(version, hops=Hops((heard,), AwayGate())) as (http, _):
        refused = await http.post(http.message(1, "tools/call", call()))
        assert refused.status_code == 503
    assert told(heard)[-1] == ("local", "tools/call", "echo", "HTTP_503")
    assert heard.ended_hops[-1].peer == ""


async def test_the_stream_of_a_legacy_client_is_counted_while_it_is_open() -> None:
    async with wire_to(LEGACY) as (http, face):
        assert face.server is not None
        headers = {**http.headers({}), "accept": "text/event-stream"}
        assert face.server.open_streams == 0
        async with http.client.stream("GET", http.url, headers=headers) as response:
            assert response.status_code == 200
            assert face.server.open_streams == 1
            face.server.stop()
            assert not [line async for line in response.aiter_lines() if line.startswith("data")]
        assert face.server.open_streams == 0
