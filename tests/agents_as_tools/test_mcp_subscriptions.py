"""Changes of resources and lists that agents share, as hosts of both eras hear of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import Subscription

from bridge.agents_as_tools.mcp_requests import subscriptions
from bridge.identity.callers.principals import LOCAL, Principal
from bridge.identity.tokens.caller_token import Caller
from bridge.mcp.server.face import McpRefusal
from bridge.remotes.remote_agent import RemoteAgent
from tests.agents_as_tools.test_mcp_requests import exposing_all, plainly, raw
from tests.support.agent_faces import OPTIONS, Served
from tests.support.sharing_agent import ALL, Json, SharingAgent

pytestmark = pytest.mark.proves("map-mcp-requests")

PROMPTS: Json = {"method": "notifications/prompts/list_changed"}


@dataclass
class Heard:
    """What a legacy client was notified of."""

    messages: list[tuple[str, Any]] = field(default_factory=list)
    _told: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, message: Any) -> None:
        """Take a message of the session."""
        if isinstance(message, Exception):
            raise message
        self.messages.append((message.method, getattr(message.params, "uri", None)))
        self._told.set()
        self._told = anyio.Event()

    async def until(self, count: int) -> list[tuple[str, Any]]:
        """The messages, once there are so many."""
        with anyio.fail_after(20):
            while len(self.messages) < count:
                await self._told.wait()
        return self.messages


@asynccontextmanager
async def legacy(there: Served) -> AsyncIterator[tuple[Client, Heard]]:
    """A client of the older era, and what it hears."""
    heard = Heard()
    async with there.client("legacy", message_handler=heard) as client:
        yield client, heard


async def next_of(events: Subscription, count: int) -> list[Any]:
    """The next events of a stream."""
    with anyio.fail_after(20):
        return [await anext(events) for _ in range(count)]


def uri_of(event: Any) -> str:
    return str(event.uri)


async def test_a_modern_client_hears_what_it_asked_for(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there, there.client() as client:
        async with client.listen(resource_subscriptions=["n:1", "n:2"], prompts_list_changed=True) as events:
            assert sorted(events.honored.resource_subscriptions or []) == ["n:1", "n:2"]
            (stream,) = agent.open
            assert stream.wanted == {"promptsListChanged": True, "resourceSubscriptions": ["n:1", "n:2"]}
            stream.updated("n:3", "n:2", "n:1/part")
            stream.notify({"method": "notifications/resources/list_changed"}, PROMPTS, {"method": "odd"})
            first, second, third = await next_of(events, 3)
            assert [uri_of(first), uri_of(second)] == ["n:2", "n:1/part"]
            assert type(third).__name__ == "PromptsListChanged"
        await agent.until(lambda: not agent.open)


async def test_a_legacy_client_hears_of_lists_and_of_what_it_subscribes_to(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there:
        async with legacy(there) as (client, heard):
            await agent.until(lambda: len(agent.open) == 1)
            assert agent.open[0].wanted == {"resourcesListChanged": True, "promptsListChanged": True}
            await raw(client, "resources/subscribe", {"uri": "n:1"})
            await agent.until(lambda: len(agent.open) == 1 and len(agent.streams) == 2)
            assert agent.open[0].wanted["resourceSubscriptions"] == ["n:1"]
            agent.open[0].updated("n:1", "n:2")
            agent.open[0].notify(PROMPTS)
            assert await heard.until(2) == [
                ("notifications/resources/updated", "n:1"),
                ("notifications/prompts/list_changed", None),
            ]
            await raw(client, "resources/unsubscribe", {"uri": "n:1"})
            await agent.until(lambda: len(agent.open) == 1 and len(agent.streams) == 3)
            assert "resourceSubscriptions" not in agent.open[0].wanted
        # An HTTP session lasts until its client deletes it, which the SDK's client does.
        await agent.until(lambda: not agent.open)


async def test_a_resource_without_updates_cannot_be_subscribed_to(tmp_path: Path) -> None:
    agent = SharingAgent(
        answer=plainly,
        obeys=lambda wanted: {**wanted, "resourceSubscriptions": []},
    )
    async with exposing_all(tmp_path, agent) as there, legacy(there) as (client, _):
        for uri in ("n:1", "a2a://one/card"):
            with pytest.raises(MCPError) as caught:
                await raw(client, "resources/subscribe", {"uri": uri})
            assert caught.value.error.code == -32602
        async with there.client() as modern, modern.listen(resource_subscriptions=["n:1"]) as events:
            assert not events.honored.resource_subscriptions


async def test_a_refused_subscription_leaves_the_earlier_one_alone(tmp_path: Path) -> None:
    agent = SharingAgent(
        answer=plainly,
        obeys=lambda wanted: None if len(wanted.get("resourceSubscriptions", [])) > 1 else wanted,
    )
    async with exposing_all(tmp_path, agent) as there, legacy(there) as (client, heard):
        await raw(client, "resources/subscribe", {"uri": "n:1"})
        with pytest.raises(MCPError):
            await raw(client, "resources/subscribe", {"uri": "n:2"})
        await agent.until(lambda: len(agent.open) == 1)
        agent.open[0].updated("n:1")
        assert await heard.until(1) == [("notifications/resources/updated", "n:1")]


async def test_all_clients_share_one_task_at_an_agent(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with (
        exposing_all(tmp_path, agent) as there,
        there.client() as client,
        client.listen(resource_subscriptions=["n:1"]) as first,
    ):
        async with client.listen(resource_subscriptions=["n:2", "n:1"]) as second:
            await agent.until(lambda: len(agent.open) == 1)
            agent.open[0].updated("n:1", "n:2")
            assert [uri_of(event) for event in await next_of(second, 2)] == ["n:1", "n:2"]
        await agent.until(lambda: len(agent.open) == 1 and len(agent.streams) == 3)
        assert agent.open[0].wanted == {"resourceSubscriptions": ["n:1"]}
        agent.open[0].updated("n:1")
        assert [uri_of(event) for event in await next_of(first, 1)] == ["n:1"]


@pytest.mark.parametrize("end", ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", ""])
async def test_everything_counts_as_changed_after_a_lost_subscription(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_FIRST_AGAIN_SECONDS", 0.01)
    agent = SharingAgent(answer=plainly)
    async with (
        exposing_all(tmp_path, agent) as there,
        there.client() as client,
        client.listen(resource_subscriptions=["n:1"], prompts_list_changed=True) as events,
    ):
        agent.streams[0].end(end) if end else agent.streams[0].drop()
        heard = await next_of(events, 2)
        assert {type(event).__name__ for event in heard} == {"PromptsListChanged", "ResourceUpdated"}
        assert len(agent.streams) == 2
        agent.streams[1].updated("n:1")
        assert [uri_of(event) for event in await next_of(events, 1)] == ["n:1"]


async def test_changes_of_several_servers_have_their_prefixes(tmp_path: Path) -> None:
    agents = [SharingAgent(answer=plainly), SharingAgent(servers={"x": ALL, "y": ALL}, answer=plainly)]
    wanted = ["a2a://one/r/n:1", "a2a://two/y/r/n:1", "a2a://two/z/r/n:1"]
    async with (
        exposing_all(tmp_path, *agents) as there,
        there.client() as client,
        client.listen(resource_subscriptions=wanted) as events,
    ):
        (of_first,), (of_second,) = agents[0].open, agents[1].open
        assert of_second.server == "y"
        assert of_first.wanted == of_second.wanted == {"resourceSubscriptions": ["n:1"]}
        of_second.updated("n:1")
        of_first.updated("n:1")
        assert {uri_of(event) for event in await next_of(events, 2)} == set(wanted[:2])


async def test_a_storm_is_coalesced(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there, legacy(there) as (client, heard):
        await raw(client, "resources/subscribe", {"uri": "n:1"})
        await agent.until(lambda: len(agent.open) == 1)
        for _ in range(200):
            agent.open[0].updated(*["n:1"] * 900)
        agent.open[0].notify(*[PROMPTS] * 1001)  # more than one update may hold: everything counts as changed
        while ("notifications/resources/list_changed", None) not in heard.messages:
            await heard.until(len(heard.messages) + 1)
        assert len(heard.messages) < 1000


async def test_nothing_is_left_when_the_server_stops(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there, legacy(there) as (client, _):
        await raw(client, "resources/subscribe", {"uri": "n:1"})
        assert agent.open
        there.server.stop()
        await agent.until(lambda: not agent.open)


async def test_an_agent_without_streams_notifies_of_nothing(tmp_path: Path) -> None:
    class Silent(SharingAgent):
        def card(self, base: str) -> Json:
            card = super().card(base)
            return {**card, "capabilities": {**card["capabilities"], "streaming": False}}

    agent = Silent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there, legacy(there) as (client, _):
        declared = client.server_capabilities.resources
        assert declared is not None
        assert not declared.subscribe
        with pytest.raises(MCPError) as caught:
            await raw(client, "resources/subscribe", {"uri": "n:1"})
        assert caught.value.error.code == types.METHOD_NOT_FOUND
        assert not agent.streams


async def test_each_principal_has_a_task_where_the_agent_is_called_in_its_name(tmp_path: Path) -> None:
    class ByName:
        """Credentials by the name of the caller."""

        issuer = logins = None

        def keep_login(self, principal: str, since: float | None) -> None: ...

        def credentials(self, caller: Caller, known: Any) -> Any:
            return replace(known, headers={"x-caller": caller.principal})

    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there:
        (made,) = there.made
        assert isinstance(made, RemoteAgent)
        made._on_behalf = ByName()
        requests = there.face.requests
        heard: dict[str, list[Json]] = {"ann": [], "bob": []}
        listeners = [requests.listener(Principal(name), heard[name].append) for name in heard]
        for listener in listeners:
            listener.want({"resourceSubscriptions": ["n:1"]})
            assert await listener.settled() == {"resourceSubscriptions": ["n:1"]}
        assert [request.headers["x-caller"] for request in agent.heard] == ["ann", "bob"]
        of_bob = agent.streams[1]
        of_bob.updated("n:1")
        with anyio.fail_after(20):
            while not heard["bob"]:
                await anyio.lowlevel.checkpoint()
        assert not heard["ann"]
        for listener in listeners:
            listener.close()
        await agent.until(lambda: not agent.open)


async def test_a_principal_with_limited_skills_gets_nothing_of_agents(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    async with exposing_all(tmp_path, agent) as there:
        requests, limited = there.face.requests, Principal("ann", skills=("x",))
        listener = requests.listener(limited, lambda _: None)
        listener.want({"resourceSubscriptions": ["n:1"]})
        assert await listener.settled() == {}
        assert not agent.streams
        assert await requests.answer("resources/list", {}, limited) == {"resources": []}
        assert await requests.answer("prompts/list", {}, limited) == {"prompts": []}
        assert not requests.takes("resources/read", {"uri": "n:1"}, limited)
        assert not requests.takes("prompts/get", {"name": "greet"}, limited)


async def test_a_client_is_told_of_so_many_resources(tmp_path: Path) -> None:
    agent = SharingAgent(answer=plainly)
    bounded = OPTIONS.agents.having(subscribed_resources=2)
    async with exposing_all(tmp_path, agent, agents=bounded) as there:
        heard: list[Json] = []
        listener = there.face.requests.listener(LOCAL, heard.append)
        listener.want({"resourceSubscriptions": ["n:1", "n:2", "n:3"]})
        # The client is told which of its resources are left out.
        assert await listener.settled() == {"resourceSubscriptions": ["n:1", "n:2"]}
        assert agent.open[0].wanted == {"resourceSubscriptions": ["n:1", "n:2"]}
        other = there.face.requests.listener(LOCAL, heard.append)
        other.want({"resourceSubscriptions": ["n:3"]})
        assert await other.settled() == {"resourceSubscriptions": ["n:3"]}
        listener.close()
        other.close()


async def test_a_principal_gets_only_what_its_rules_allow(tmp_path: Path) -> None:
    def answer(_: str, method: str, __: Json) -> Json:
        listed = [{"uri": uri, "name": "n"} for uri in ("n:1", "n:12", "n:2")]
        templates = [{"uriTemplate": one, "name": "n"} for one in ("n:1{x}", "m:{x}")]
        prompts = [{"name": name} for name in ("greet", "other")]
        links = [{"type": "resource_link", **entry} for entry in listed]
        embedded = {"type": "resource", "resource": {"uri": "n:2", "text": "t"}}
        messages = [{"role": "user", "content": one} for one in (*links, embedded)]
        results = {
            "resources/list": {"resources": listed},
            "resources/templates/list": {"resourceTemplates": templates},
            "prompts/list": {"prompts": prompts},
            "prompts/get": {"messages": messages},
            "resources/read": {"contents": [{"uri": uri, "text": "t"} for uri in ("n:1", "n:2")]},
            "completion/complete": {"completion": {"values": ["", "/../2"], "total": 2}},
        }
        return {"result": {**results[method], "cacheScope": "public"}}

    rules = Principal("ann", skills=("x",), resources=("n:1*",), prompts=("greet",))
    agent = SharingAgent(answer=answer)
    async with exposing_all(tmp_path, agent) as there:
        requests = there.face.requests

        async def names(method: str, key: str, name: str) -> list[Any]:
            result = await requests.answer(method, {}, rules)
            listed: Any = result[key]
            return [one[name] for one in listed]

        assert await names("resources/list", "resources", "uri") == ["n:1", "n:12"]
        assert await names("resources/templates/list", "resourceTemplates", "uriTemplate") == ["n:1{x}"]
        assert await names("prompts/list", "prompts", "name") == ["greet"]
        assert requests.takes("resources/read", {"uri": "n:12"}, rules)
        for uri in ("n:2", "n:1/../2", "n:1/%2e%2e/2"):
            assert not requests.takes("resources/read", {"uri": uri}, rules)
        assert not requests.takes("prompts/get", {"name": "other"}, rules)
        argument = {"name": "x", "value": ""}
        for ref in ({"type": "ref/prompt", "name": "other"}, {"type": "ref/resource", "uri": "m:{x}"}):
            with pytest.raises(McpRefusal):
                await requests.answer("completion/complete", {"ref": ref, "argument": argument}, rules)
        allowed = {"ref": {"type": "ref/resource", "uri": "n:1{x}"}, "argument": argument}
        completed: Any = await requests.answer("completion/complete", allowed, rules)
        assert completed == {"completion": {"values": [""]}, "cacheScope": "private"}
        read: Any = await requests.answer("resources/read", {"uri": "n:1"}, rules)
        assert read == {"contents": [{"uri": "n:1", "text": "t"}], "cacheScope": "private"}
        got: Any = await requests.answer("prompts/get", {"name": "greet"}, rules)
        contents = [one["content"] for one in got["messages"]]
        withheld = {"type": "text", "text": "[a resource that is not passed on]"}
        assert [one.get("uri", one) for one in contents] == ["n:1", "n:12", withheld, withheld]
        listener = requests.listener(rules, lambda _: None)
        listener.want({"resourceSubscriptions": ["n:1", "n:2"]})
        assert await listener.settled() == {"resourceSubscriptions": ["n:1"]}
        assert agent.open[0].wanted == {"resourceSubscriptions": ["n:1"]}
        listener.close()
