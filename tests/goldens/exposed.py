"""Agents as tools: what an MCP client asks of the bridge, and what the bridge asks of the agent for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import OfferedPlan, Plan, ProcessPlan, RemotePlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from tests.goldens.peer import PARTS, Json, Peer, Told, gives, message, refuses, task, turns_to
from tests.goldens.recording import ROOT, Recording
from tests.support.in_process import client_of
from tests.support.mcp_tasks import TAKES_ALL
from tests.support.mcp_wire import LEGACY, MODERN, Http, messages_of
from tests.support.running import EXTENSION, listening, profile_with

WORDS = {"text": "hello"}
FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
ASKS_WITH_FORM = ({"text": "Sure?"}, {"data": {"key": "sure", "schema": FORM}})
ELICITS = {"elicitation": {"form": {}, "url": {}}}


@dataclass
class Host:
    """An MCP client on the raw wire, each of whose requests has a heading."""

    record: Recording
    http: Http
    _next: int = 0

    async def ask(self, heading: str, method: str, **params: Any) -> Json:
        """The response to a request."""
        self.record.heading(heading)
        self._next += 1
        return messages_of(await self.http.post(self.http.message(self._next, method, params)))[-1]

    async def call(self, heading: str, tool: str = "act", more: Json | None = None, **arguments: Any) -> Json:
        """The result of a tool, or the error; `more` are other params."""
        answer = await self.ask(heading, "tools/call", name=tool, arguments=arguments, **(more or {}))
        found: Json = answer.get("result", answer)
        return found


@dataclass
class FaultPolicy:
    """What each operation is answered with."""

    answers: dict[str, list[list[Told]]] = field(default_factory=dict)

    def on(self, operation: str, *told: Told) -> None:
        """What it is answered with from here on."""
        self.answers[operation] = [list(told)]

    def then(self, operation: str, *told: Told) -> None:
        """What it is answered with from the second time on."""
        self.answers[operation].append(list(told))

    def __call__(self, operation: str, params: Json) -> list[Told]:
        left = self.answers[operation]
        return left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def host(
    record: Recording,
    folder: Path,
    peer: Peer,
    version: str = MODERN,
    capabilities: Json | None = None,
    remote: Callable[[str], RemotePlan] = RemotePlan,
    **agents: Any,
) -> AsyncIterator[Host]:
    """A client of a bridge that offers one agent as tools; what the agent is asked stands behind `agent`."""
    profile = profile_with(agents=agents)
    async with listening(record.of(peer.app(), "agent")) as url:
        record.heading("The start")
        offered = {"peer": OfferedPlan(("peer",), profile, named=False, server_name="mcp-a2a")}
        place = ProcessPlan(state=folder / "state", cache=folder / "cache")
        plan = Plan(profile, place, agents={"peer": remote(url)}, offered=offered)
        bridge = Bridge(plan)
        async with bridge.run():
            await bridge.apply(plan)
            async with client_of(record.of(bridge.app, "mcp", hides_client=True)) as client:
                http = Http(client, f"{ROOT}/mcp", version, capabilities)
                await http.open()
                yield Host(record, http)
            for one in bridge.offered:
                one.server.stop()


async def following(record: Recording, folder: Path, binding: str) -> None:
    """Calls of an agent that streams: followed, lost and found again, ended in each way."""
    told = FaultPolicy()
    async with host(record, folder, Peer(told, binding)) as there:
        await there.ask("Discovery", "server/discover")
        await there.ask("The tools", "tools/list")
        await there.ask("The resources", "resources/list")
        await there.ask("The card, as a resource", "resources/read", uri="a2a://peer/card")
        told.on(
            "SendStreamingMessage",
            {"task": task("SUBMITTED")},
            turns_to("WORKING", WORDS),
            gives({"text": "one "}),
            gives({"text": "two"}, append=True, lastChunk=True),
            gives(*PARTS, artifact_id="a-2"),
            turns_to("COMPLETED"),
        )
        await there.call("A call", message="hi")
        await there.call("A call with progress", message="hi", more={"_meta": {"progressToken": "p-1"}})
        await there.call(
            "A call with data and a file",
            message="hi",
            data={"n": 1},
            files=[{"url": "https://example.com/a.pdf"}],
        )
        told.on("SendStreamingMessage", {"message": message("said", WORDS)})
        await there.call("A message for an answer", message="hi")
        for state in ("FAILED", "REJECTED", "CANCELED", "AUTH_REQUIRED", "INPUT_REQUIRED"):
            told.on("SendStreamingMessage", {"task": task("SUBMITTED")}, turns_to(state, WORDS))
            await there.call(f"A task that ends as {state}", message="hi")
        await _lost_and_found(there, told)


async def _lost_and_found(there: Host, told: FaultPolicy) -> None:
    told.on("SendStreamingMessage", refuses(-32602, "Say it nicely", "INVALID_PARAMS"))
    await there.call("A refusal", message="hi")
    told.on("SendStreamingMessage", {"task": task("WORKING")})
    told.on("SubscribeToTask", {"task": task("WORKING")}, gives(WORDS), turns_to("COMPLETED"))
    told.on("GetTask", task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": [WORDS]}]))
    await there.call("A stream that breaks off, and is subscribed to again", message="hi")
    told.on("SendStreamingMessage", {"task": task("WORKING")})
    told.on("SubscribeToTask", refuses(-32004, "It has ended", "UNSUPPORTED_OPERATION"))
    told.on("GetTask", task("COMPLETED", WORDS))
    await there.call("A stream that breaks off, of a task that has ended", message="hi")
    await there.call("Arguments that are none", message=5)
    await there.call("A tool that there is not", "nothing", message="hi")


async def polling(record: Recording, folder: Path, binding: str) -> None:
    """Calls of an agent that does not stream."""
    told = FaultPolicy()
    async with host(record, folder, Peer(told, binding, {"capabilities": {}})) as there:
        told.on("SendMessage", {"task": task("COMPLETED", WORDS)})
        await there.call("An answer at once", message="hi")
        told.on("SendMessage", {"task": task("WORKING")})
        told.on("GetTask", task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": PARTS}]))
        await there.call("An answer that is asked for", message="hi")
        told.on("SendMessage", {"message": message("said", WORDS)})
        await there.call("A message", message="hi")


async def coming_back(record: Recording, folder: Path) -> None:
    """A task that has not ended, and the tools with which a host comes back to it."""
    told = FaultPolicy()
    async with host(record, folder, Peer(told)) as there:
        told.on("SendStreamingMessage", {"task": task("INPUT_REQUIRED", {"text": "Which?"})})
        given = await there.call("A call that asks a host that cannot be asked", message="hi")
        handle = given["_meta"]["mcp-a2a/unfinished"]["handle"]
        told.on("GetTask", task("COMPLETED", WORDS))
        await there.call("Its result", "task_result", handle=handle)
        told.on("CancelTask", task("CANCELED"))
        await there.call("Its cancellation", "task_cancel", handle=handle)
        told.on("CancelTask", refuses(-32002, "It has ended", "TASK_NOT_CANCELABLE"))
        await there.call("One that is refused", "task_cancel", handle=handle)
        told.on("GetTask", task("INPUT_REQUIRED", {"text": "Which?"}))
        told.on("SendStreamingMessage", {"task": task("WORKING")}, gives(WORDS), turns_to("COMPLETED"))
        await there.call("An answer", "task_reply", handle=handle, message="that one")
        await there.call("A handle that is none", "task_result", handle="none")
        told.on("SendStreamingMessage", {"task": task("COMPLETED", WORDS)})
        done = await there.call("A conversation", message="hi")
        context = done["_meta"]["mcp-a2a/context"]
        await there.call("It goes on", message="and?", context=context)


async def asking(record: Recording, folder: Path, version: str) -> None:
    """What an agent asks, as an elicitation of each era."""
    told = FaultPolicy()
    async with host(record, folder, Peer(told), version, ELICITS) as there:
        told.on("SendStreamingMessage", {"task": task("INPUT_REQUIRED", *ASKS_WITH_FORM)})
        told.then("SendStreamingMessage", {"task": task("COMPLETED", WORDS)})
        told.on("GetTask", task("INPUT_REQUIRED", *ASKS_WITH_FORM))
        await _answered(there, {"action": "accept", "content": {"sure": True}})
        told.on("SendStreamingMessage", {"task": task("INPUT_REQUIRED", {"text": "Which?"})})
        told.on("GetTask", task("INPUT_REQUIRED", {"text": "Which?"}))
        told.on("CancelTask", task("CANCELED", WORDS))
        await _answered(there, {"action": "decline"})


async def _answered(there: Host, answer: Json) -> None:
    """Call, and answer what is asked."""
    call = {"name": "act", "arguments": {"message": "hi"}}
    if there.http.version == MODERN:
        asked = (await there.ask("A call that asks", "tools/call", **call))["result"]
        (key,) = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {key: answer}}
        await there.ask("The answer", "tools/call", **call, **more)
        return
    there.record.heading("A call that asks, and the answer")
    async with there.http.stream(there.http.message("call", "tools/call", call)) as messages:
        async for one in messages:
            if "method" in one and "id" in one:
                await there.http.post({"jsonrpc": "2.0", "id": one["id"], "result": answer})


async def hanging_up(record: Recording, folder: Path, version: str) -> None:
    """A call that its host gives up: the agent's task is cancelled."""
    told = FaultPolicy()
    async with host(record, folder, Peer(told), version) as there:
        told.on(
            "SendStreamingMessage", {"task": task("SUBMITTED")}, turns_to("WORKING", WORDS), anyio.Event()
        )
        told.on("CancelTask", task("CANCELED"))
        record.heading("A call that is given up")
        params = {"name": "act", "arguments": {"message": "hi"}, "_meta": {"progressToken": "p-1"}}
        async with there.http.stream(there.http.message("call", "tools/call", params)) as messages:
            async for one in messages:
                if one.get("method") == "notifications/progress":
                    if version == MODERN:
                        break
                    given_up = {"requestId": "call", "reason": "enough"}
                    said = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": given_up}
                    await there.http.post(said)
        await record.answered("CancelTask")


async def granularities(record: Recording, folder: Path) -> None:
    """A tool for each agent, and two tools for all skills."""
    told = FaultPolicy()
    told.on("SendStreamingMessage", {"task": task("COMPLETED", WORDS)})
    async with host(record, folder, Peer(told), granularity="agent") as there:
        listed = (await there.ask("A tool for each agent", "tools/list"))["result"]["tools"]
        await there.call("It is called", listed[0]["name"], message="hi", skill="act")
    async with host(record, folder, Peer(told), granularity="search", follow_up_tools=False) as there:
        await there.ask("Two tools for all skills", "tools/list")
        await there.call("One finds skills", "find_skill", query="act")
        await there.call("The other calls them", "call_skill", skill="act", arguments={"message": "hi"})
        await there.call("A skill that there is not", "call_skill", skill="none", arguments={})


async def tasks(record: Recording, folder: Path) -> None:
    """Calls that become tasks of MCP."""
    told = FaultPolicy()
    peer = Peer(told)
    async with host(record, folder, peer, MODERN, TAKES_ALL, task_after_seconds=0) as there:
        told.on("SendStreamingMessage", {"task": task("WORKING", WORDS)}, anyio.Event())
        created = await there.call("A call that becomes a task", message="hi")
        named = {"taskId": created["taskId"]}
        told.on("GetTask", task("WORKING", WORDS))
        await there.ask("It is at work", "tasks/get", **named)
        told.on("GetTask", task("INPUT_REQUIRED", *ASKS_WITH_FORM))
        asked = (await there.ask("It asks", "tasks/get", **named))["result"]
        told.on("GetTask", task("INPUT_REQUIRED", *ASKS_WITH_FORM))
        told.on("SendMessage", {"task": task("WORKING")})
        answers = {key: {"action": "accept", "content": {"sure": True}} for key in asked["inputRequests"]}
        await there.ask("It is answered", "tasks/update", inputResponses=answers, **named)
        told.on("GetTask", task("COMPLETED", artifacts=[{"artifactId": "a-1", "parts": PARTS}]))
        await there.ask("It has ended", "tasks/get", **named)
        told.on("CancelTask", refuses(-32002, "It has ended", "TASK_NOT_CANCELABLE"))
        await there.ask("It is cancelled", "tasks/cancel", **named)
        told.on("GetTask", refuses(-32001, "No such task", "TASK_NOT_FOUND"))
        await there.ask("It is gone", "tasks/get", **named)
        await there.ask("A task that is none", "tasks/get", taskId="none")


async def legacy(record: Recording, folder: Path) -> None:
    """The era of 2025-11-25."""
    told = FaultPolicy()
    async with host(record, folder, Peer(told), LEGACY) as there:
        await there.ask("The tools", "tools/list")
        told.on(
            "SendStreamingMessage", {"task": task("WORKING", WORDS)}, gives(*PARTS), turns_to("COMPLETED")
        )
        await there.call("A call with progress", message="hi", more={"_meta": {"progressToken": 7}})
        told.on("SendStreamingMessage", {"task": task("SUBMITTED")}, turns_to("FAILED", WORDS))
        await there.call("A task that fails", message="hi")
        await there.call("Arguments that are none", message=5)
        await there.ask("A method that there is not", "tasks/get", taskId="t")
        there.record.heading("The end of the session")
        await there.http.client.delete(there.http.url, headers={"mcp-session-id": there.http.session or ""})
        await there.ask("After it", "tools/list")


async def credentials(record: Recording, folder: Path) -> None:
    """What shows the agent who calls, with its card and with each request, and the extension of bridges."""
    tool = {"name": "act", "inputSchema": FORM, "outputSchema": {"type": "object"}}
    card = {
        "capabilities": {
            "streaming": True,
            "extensions": [{"uri": EXTENSION, "params": {"tools": {"act": tool}}}],
        },
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}},
        "securityRequirements": [{"schemes": {"key": {"list": []}}}],
    }
    told = FaultPolicy()

    def remote(url: str) -> RemotePlan:
        return RemotePlan(url, headers={"X-Extra": "extra"}, bearer="token-1", api_key="key-1")

    async with host(record, folder, Peer(told, card=card), remote=remote) as there:
        await there.ask("The tools", "tools/list")
        told.on("SendStreamingMessage", {"task": task("COMPLETED", WORDS)})
        await there.call("A call", sure=True)


async def access(record: Recording) -> None:
    """Who is let in to the face, and what is no request."""
    profile = profile_with(requests={"body_limit_bytes": 400, "json_values": 30})
    plan = Plan(
        profile,
        credentials=(Credential(Principal("alice"), "alices-secret"),),
        offered={"none": OfferedPlan((), profile)},
    )
    bridge = Bridge(plan)
    async with bridge.run():
        await bridge.apply(plan)
        async with client_of(record.of(bridge.app, hides_client=True)) as client:
            http = Http(client, f"{ROOT}/mcp", MODERN)
            listing = http.message(1, "tools/list")
            alice = {"authorization": "Bearer alices-secret"}
            record.heading("Without a secret, and with one")
            await http.post(listing)
            await http.post(listing, **alice)
            for heading, headers in (
                ("Another host", {"host": "evil.example.com"}),
                ("A page of another origin", {"origin": "https://evil.example.com"}),
                ("Another media type", {"content-type": "text/plain"}),
                ("No stream accepted", {"accept": "application/json"}),
                ("Another version", {"mcp-protocol-version": "2024-01-01"}),
                ("Another method in the header", {"mcp-method": "tools/call"}),
            ):
                record.heading(heading)
                await http.post(listing, **{**alice, **headers})
            record.heading("Too large, too many values, no JSON, a batch")
            for body in ("x" * 401, "[" + "1," * 40 + "1]", "{", "[]"):
                await client.post(http.url, content=body, headers={**http.headers(listing), **alice})
            for verb in ("GET", "PUT", "DELETE"):
                record.heading(f"With {verb}")
                await client.request(verb, http.url, headers=alice)
        for one in bridge.offered:
            one.server.stop()
