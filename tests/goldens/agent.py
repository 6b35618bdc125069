"""The bridge as an A2A agent: every operation, event and error over both bindings, and the cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.http.request_checks import API_KEY_HEADER
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from bridge.mcp.client.eras import Era
from tests.goldens.agents import (
    AT_ONCE,
    CARD_PATH,
    ECHO,
    JSON,
    LACKING,
    NOBODYS,
    VERSION,
    WAIT,
    Talk,
    agent,
    bridge_of,
)
from tests.goldens.recording import ROOT, Recording
from tests.support.asking import asking_command
from tests.support.drivers import PUSH_OPERATIONS, Driver, HttpJsonDriver, JsonRpcDriver
from tests.support.in_process import client_of
from tests.support.running import EXTENSION, call_part, profile_with, raw_command

ALICE = {"Authorization": "Bearer alices-secret"}


async def sending(record: Recording, kind: type[Driver]) -> None:
    """SendMessage, for each thing that a tool can give."""
    async with agent(record, kind) as talk:
        await talk.send("A call", ECHO)
        await talk.send("A call in text", {"text": "echo text=hello"})
        await talk.send("A skill named in metadata", {"text": "hello"}, metadata={"skillId": "echo"})
        await talk.send("Structured output", call_part("add", a=1, b=2))
        await talk.send("Every kind of block", call_part("every-block"))
        with_extension = talk.with_headers(a2a_extensions=f"urn:other, {EXTENSION}")
        await with_extension.send("The same, with the extension", call_part("every-block"))
        await talk.send("Nothing at all", call_part("empty"))
        await talk.send("A block of an unknown type", call_part("odd"))
        await talk.send("Links", call_part("link"))
        await talk.send(
            "A file as raw bytes",
            call_part("upload"),
            {"raw": "iVBO", "mediaType": "image/png", "filename": "a.png"},
        )
        await talk.send("A tool that fails", call_part("fail"))
        await talk.send("A server that refuses", call_part("refuse", code=-32000))
        await talk.send("An unknown skill", call_part("nothing"))
        await talk.send("No skill: the agent asks which", {"text": "hello"})
        await talk.send("Wrong arguments", call_part("echo", text=5))
        await _answered_and_repeated(talk)


async def _answered_and_repeated(talk: Talk) -> None:
    asked = await talk.send("A missing argument is asked for", LACKING)
    await talk.send("The answer", {"text": "2"}, taskId=asked["id"])
    asked = await talk.send("Again, in a context of the client's", LACKING, contextId="ctx-own")
    await talk.send("The answer, as data", {"data": {"b": 3}}, taskId=asked["id"], contextId="ctx-own")
    await talk.send(
        "What is kept and not used",
        ECHO,
        referenceTaskIds=["t-0"],
        extensions=["urn:x"],
        metadata={"x": 1},
        unknown=[1],
    )
    waiting = await talk.send("At once", WAIT, configuration=AT_ONCE)
    await talk.ask("Its end", "CancelTask", id=waiting["id"])
    for length in (0, 1):
        await talk.send(f"History of {length}", ECHO, configuration={"historyLength": length})
    await talk.send("The same message", call_part("empty"), messageId="m-same")
    await talk.send("The same message again", call_part("empty"), messageId="m-same")
    await talk.send("Another with its id", ECHO, messageId="m-same")


async def streams(record: Recording, kind: type[Driver]) -> None:
    """SendStreamingMessage and SubscribeToTask."""
    async with agent(record, kind) as talk:
        await talk.stream("A call", ECHO)
        await talk.stream("Progress", call_part("progress", steps=3))
        with_extension = talk.with_headers(a2a_extensions=EXTENSION)
        await with_extension.stream("Every kind of block, with the extension", call_part("every-block"))
        await talk.stream("Every kind of block, without it", call_part("every-block"))
        await talk.stream("A tool that fails", call_part("fail"))
        await talk.stream("An unknown skill", call_part("nothing"))
        await talk.stream("A history of none", ECHO, configuration={"historyLength": 0})
        asked = await talk.send("A missing argument", LACKING)
        await talk.stream("The answer, streamed", {"text": "2"}, taskId=asked["id"])
        await talk.stream("A missing argument ends the stream", LACKING)
        asked = await talk.send("Another one", LACKING)
        async with talk.opened("Its events from here on", "SubscribeToTask", id=asked["id"]) as events:
            await events.next()
            await talk.send("Its answer", {"text": "2"}, taskId=asked["id"])
            await events.rest()
        params = record.message(WAIT)
        async with talk.opened("A call that is cancelled", "SendStreamingMessage", **params) as events:
            begun = await events.next()
            await events.until("WORKING")
            task_id = begun["task"]["id"]
            async with talk.opened("Its events, a second time", "SubscribeToTask", id=task_id) as others:
                await others.next()
                await talk.ask("The cancellation", "CancelTask", id=task_id)
                await events.rest()
                await others.rest()


async def tasks(record: Recording, kind: type[Driver]) -> None:
    """GetTask, ListTasks, CancelTask, and what is not served."""
    async with agent(record, kind) as talk:
        asked = await talk.send("A task that asks", LACKING, contextId="ctx-1")
        ended = await talk.send("One that has ended", call_part("progress", steps=1), contextId="ctx-2")
        await talk.send("One that has failed", call_part("fail"), contextId="ctx-1")
        for length in ({}, {"historyLength": 0}, {"historyLength": 1}):
            await talk.ask(f"GetTask {length}", "GetTask", id=asked["id"], **length)
        await talk.ask("GetTask of what has ended", "GetTask", id=ended["id"])
        page = await talk.ask("ListTasks", "ListTasks")
        page = await talk.ask("A page of two", "ListTasks", pageSize=2)
        await talk.ask("The next page", "ListTasks", pageSize=2, pageToken=page["nextPageToken"])
        filters: tuple[dict[str, Any], ...] = (
            {"contextId": "ctx-1"},
            {"status": "TASK_STATE_COMPLETED"},
            {"includeArtifacts": True, "contextId": "ctx-2"},
            {"historyLength": 1, "contextId": "ctx-1"},
            {"statusTimestampAfter": "2099-01-01T00:00:00Z"},
            {"contextId": "ctx-none"},
        )
        for one in filters:
            await talk.ask(f"ListTasks {json.dumps(one)}", "ListTasks", **one)
        await talk.ask("CancelTask", "CancelTask", id=asked["id"], metadata={"why": "enough"})
        for operation in PUSH_OPERATIONS:
            await talk.ask(
                f"{operation}", operation, taskId=ended["id"], id="c-1", url="https://hooks.example.com"
            )
        await talk.ask("The extended card", "GetExtendedAgentCard")


async def errors(record: Recording, kind: type[Driver]) -> None:
    """Every error that an operation can be answered with."""
    async with agent(record, kind) as talk:
        ended = await talk.send("A task that has ended", ECHO)
        asked = await talk.send("One that asks", LACKING, contextId="ctx-1")
        for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
            await talk.ask(f"{operation} of no task", operation, id=NOBODYS)
        await talk.ask("CancelTask of what has ended", "CancelTask", id=ended["id"])
        await talk.ask("SubscribeToTask of what has ended", "SubscribeToTask", id=ended["id"])
        await talk.send("A message to no task", ECHO, taskId=NOBODYS)
        await talk.send("A message to what has ended", ECHO, taskId=ended["id"])
        await talk.send("A message in another context", {"text": "2"}, taskId=asked["id"], contextId="ctx-2")
        png = {"acceptedOutputModes": ["image/png"]}
        await talk.send("An output that is not made", call_part("add", a=1, b=2), configuration=png)
        await talk.send(
            "An input that is not taken", ECHO, {"raw": "AAEC", "mediaType": "application/x-demo"}
        )
        hook = {"taskPushNotificationConfig": {"url": "https://hooks.example.com"}}
        await talk.send("A push configuration in a message", ECHO, configuration=hook)
        for operation in ("SendMessage", "SendStreamingMessage"):
            await talk.ask(f"{operation} of nothing", operation)
        await talk.send("A message without parts")
        await talk.send(
            "Parts that are none", {}, {"text": "a", "url": "https://x.test"}, {"text": 5}, {"raw": "%"}
        )
        await talk.send("A message of the agent's", ECHO, role="ROLE_AGENT")
        await talk.send("Other fields at fault", ECHO, configuration={"historyLength": -1}, messageId="")
        await talk.ask("No page size", "ListTasks", pageSize=0)
        await talk.ask(
            "Filters at fault", "ListTasks", status="DONE", pageToken="x", statusTimestampAfter="today"
        )
        await talk.ask("A negative history", "GetTask", id=ended["id"], historyLength=-1)
        for version in ("0.3", "1.9", "one", ""):
            old = talk.with_headers(A2A_Version=version)
            await old.ask(f"Version {version!r}", "GetTask", id=ended["id"])
        await talk.with_headers(A2A_Version="0.3").ask("A stream of version 0.3", "SendStreamingMessage")
        waiting = await talk.send("One that is at work", WAIT, configuration=AT_ONCE)
        await talk.send("A message to what is at work", {"text": "more"}, taskId=waiting["id"])
        await talk.ask("Its end", "CancelTask", id=waiting["id"])


async def bounds(record: Recording, kind: type[Driver]) -> None:
    """What is too much."""
    requests = {
        "body_limit_bytes": 600,
        "json_depth": 8,
        "json_values": 60,
        "parts": 2,
        "open_tasks": 3,
        "history_messages": 1,
        "held_messages": 0,
    }
    profile = profile_with(requests=requests, run={"concurrency": 1, "queue": 1}, streams={"open": 1})
    async with agent(record, kind, profile=profile) as talk:
        await talk.send("Too many bytes", {"text": "x" * 600})
        await talk.send("Too many values", {"data": [1] * 60})
        await talk.send("Too deep", {"data": [[[[[[1]]]]]]})
        await talk.send("Too many parts", *[{"text": "x"}] * 3)
        asked = await talk.send("A task that asks", call_part("add"))
        await talk.send("Its history is full", {"data": {"a": 1}}, taskId=asked["id"])
        await talk.ask("Its end", "CancelTask", id=asked["id"])
        first = record.message(WAIT)
        async with talk.opened("A call that waits", "SendStreamingMessage", **first) as events:
            task = (await events.next())["task"]
            await events.until("WORKING")
            await talk.ask("One stream too many", "SubscribeToTask", id=task["id"])
            second = await talk.send("A call that waits for its turn", WAIT, configuration=AT_ONCE)
            await talk.send("One call too many", ECHO)
            await talk.send("Input for what is at work", {"text": "more"}, taskId=task["id"])
            await talk.send("A third task that is open", LACKING)
            await talk.send("One open task too many", LACKING)
            for one in (second, task):
                await talk.ask("An end", "CancelTask", id=one["id"])
            await events.rest()


async def jsonrpc(record: Recording) -> None:
    """What JSON-RPC asks of a body."""
    bodies: dict[str, str | bytes] = {
        "No JSON": "{",
        "Nothing": "",
        "No number": '{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"a":NaN}}',
        "Half a character": '{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"a":"\\ud800"}}',
        "No UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        "A name twice": '{"jsonrpc":"2.0","id":1,"id":2,"method":"ListTasks"}',
        "A batch": '[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]',
        "An empty batch": "[]",
        "Null": "null",
        "A notification": '{"jsonrpc":"2.0","method":"ListTasks"}',
        "An id of null": '{"jsonrpc":"2.0","id":null,"method":"ListTasks"}',
        "Another version of JSON-RPC": '{"jsonrpc":"1.0","id":7,"method":"ListTasks"}',
        "No method": '{"jsonrpc":"2.0","id":7}',
        "A method that is a number": '{"jsonrpc":"2.0","id":7,"method":5}',
        "A method of version 0.3": '{"jsonrpc":"2.0","id":7,"method":"message/send","params":{}}',
        "Params in an array": '{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":[]}',
        "No params": '{"jsonrpc":"2.0","id":7.5,"method":"ListTasks"}',
        "Spaces and an id of text": ' { "jsonrpc" : "2.0", "id": "\\u00e9", "method": "ListTasks" } ',
        "The extended card": '{"jsonrpc":"2.0","id":7,"method":"GetExtendedAgentCard"}',
    }
    async with agent(record, JsonRpcDriver) as talk:
        for heading, body in bodies.items():
            await talk.http(heading, "POST", "", {**VERSION, **JSON}, body)
        listing = '{"jsonrpc":"2.0","id":1,"method":"ListTasks"}'
        await talk.http("At the root", "POST", "/", {**VERSION, **JSON}, listing)
        await _headers(talk, "", listing)
        for verb in ("GET", "PUT", "DELETE", "OPTIONS"):
            await talk.http(f"With {verb}", verb, "", VERSION)


async def http_json(record: Recording) -> None:
    """What HTTP+JSON asks of paths, verbs and bodies."""
    async with agent(record, HttpJsonDriver) as talk:
        for body in ("{", "[]", '"text"', "null"):
            await talk.http(f"A body {body}", "POST", "/message:send", {**VERSION, **JSON}, body)
        for path in ("/nothing", "/tasks/", "/tasks/a/b", "/message", "/v1/message:send", "/blue/tasks"):
            await talk.http("A path of nothing", "GET", path, VERSION)
        wrong = (
            ("GET", "/message:send"),
            ("POST", "/tasks"),
            ("PUT", "/tasks/x:cancel"),
            ("DELETE", "/tasks/x/pushNotificationConfigs"),
            ("POST", "/extendedAgentCard"),
            ("OPTIONS", "/message:send"),
        )
        for verb, path in wrong:
            await talk.http("A verb that is not taken", verb, path, VERSION)
        await talk.http("A boolean that is none", "GET", "/tasks?includeArtifacts=maybe", VERSION)
        await talk.http("Numbers that are none", "GET", "/tasks?pageSize=x&historyLength=1.5", VERSION)
        await talk.http("Parameters that are not known", "GET", "/tasks?future=1&pageSize=1", VERSION)
        for verb in ("GET", "POST"):
            await talk.http(f"Subscribe with {verb}", verb, f"/tasks/{NOBODYS}:subscribe", VERSION)
        await talk.http("Cancel, with a body", "POST", f"/tasks/{NOBODYS}:cancel", {**VERSION, **JSON}, "{}")
        content = json.dumps(record.message(ECHO))
        await talk.http("A body that says what it is", "POST", "/message:send", {**VERSION, **JSON}, content)
        await talk.http(
            "A query beside a body", "POST", "/message:send?historyLength=1", {**VERSION, **JSON}, content
        )
        await _accepts(talk)
        await _headers(talk, "/tasks", None)


async def _accepts(talk: Talk) -> None:
    accepts = (
        "application/json",
        "application/a2a+json",
        "application/json, */*",
        "*/*",
        "application/json;q=0.5, application/a2a+json;q=0.4",
        "text/event-stream",
    )
    for accept in accepts:
        await talk.http(f"Accept: {accept}", "GET", "/tasks?pageSize=1", {**VERSION, "Accept": accept})
    stream = {**VERSION, **JSON, "Accept": "application/json"}
    content = json.dumps(talk.record.message(ECHO))
    await talk.http("A stream for who accepts only JSON", "POST", "/message:stream", stream, content)


async def _headers(talk: Talk, path: str, content: str | None) -> None:
    """Service parameters, and where a request comes from."""
    verb = "POST" if content else "GET"
    typed = JSON if content else {}
    cases: dict[str, tuple[str, dict[str, str]]] = {
        "The version in the query": ("?A2A-Version=1.0", {}),
        "A wrong one in the query": ("?A2A-Version=0.3", {}),
        "No version": ("", {}),
        "A patch number": ("", {"A2A-Version": "1.0.7"}),
        "Extensions": ("", {**VERSION, "A2A-Extensions": f"urn:other, {EXTENSION}"}),
        "An unknown extension": ("", {**VERSION, "A2A-Extensions": "urn:other"}),
        "Another host": ("", {**VERSION, "Host": "evil.example.com"}),
        "A page of another origin": ("", {**VERSION, "Origin": "https://evil.example.com"}),
        "A page of its own": ("", {**VERSION, "Origin": ROOT}),
    }
    for heading, (query, headers) in cases.items():
        await talk.http(heading, verb, f"{path}{query}", {**typed, **headers}, content)
    post = "" if content else "/message:send"
    for media_type in ("text/plain", "application/json; charset=latin-1", "application/json; charset=UTF-8"):
        headers = {**VERSION, "Content-Type": media_type}
        await talk.http(media_type, "POST", post, headers, content or "{}")


async def access(record: Recording, folder: Path) -> None:
    """Principals: who is let in, and what they see."""
    credentials = (
        Credential(Principal("alice"), "alices-secret"),
        Credential(Principal("bob", skills=("add",)), "bobs-secret", Scheme.API_KEY),
    )
    async with (
        bridge_of(folder, raw_command(), ("raw",), credentials=credentials) as bridge,
        client_of(record.of(bridge.app, hides_client=True)) as client,
    ):
        for kind in (JsonRpcDriver, HttpJsonDriver):
            nobody = Talk(record, kind(client, f"{ROOT}/agents/raw"), client)
            await nobody.send("Without a secret", ECHO)
            await nobody.with_headers(Authorization="Bearer wrong").send("With a wrong one", ECHO)
            await nobody.with_headers(Authorization="Basic YTpi").send("In another scheme", ECHO)
            alice, bob = nobody.with_headers(**ALICE), nobody.with_headers(**{API_KEY_HEADER: "bobs-secret"})
            task = await alice.send("As alice", ECHO)
            await bob.ask("Bob gets her task", "GetTask", id=task["id"])
            await bob.ask("Bob lists his", "ListTasks")
            await bob.send("Bob may not use that skill", ECHO)
            await bob.send("Bob may use this one", call_part("add", a=1, b=2))
        for path in (f"/agents/raw{CARD_PATH}", "/agents", "/healthz", "/readyz"):
            record.heading("Read by everyone, or not")
            await client.get(f"{ROOT}{path}")


async def hermes(record: Recording) -> None:
    """Tasks as resources, where the agent speaks Hermes."""
    waits = {"metadata": {"urn:mcp-a2a:unsaid:v1": {"configuration": {"returnImmediately": False}}}}

    def said(part: dict[str, Any], **fields: Any) -> str:
        kind = "data" if "data" in part else "text"
        message = {"role": "user", "parts": [{"type": kind, **part}]}
        return json.dumps({"message": message, **fields})

    async with agent(record, HttpJsonDriver, profile=profile_with(card={"hermes": True})) as talk:
        begun = (await talk.http("A task", "POST", "/tasks", JSON, said(WAIT, sessionId="s-1"))).json()
        await talk.http("Canceled", "PUT", f"/tasks/{begun['id']}/cancel")
        await talk.http("Its stream", "GET", f"/tasks/{begun['id']}/stream")
        done = (await talk.http("One that is waited for", "POST", "/tasks", JSON, said(ECHO, **waits))).json()
        for path in ("", "/artifacts", "/messages", "/stream"):
            await talk.http(f"Read at {path or 'its own path'}", "GET", f"/tasks/{done['id']}{path}")
        await talk.http("In 1.0", "GET", f"/tasks/{done['id']}", VERSION)
        messages = f"/tasks/{done['id']}/messages"
        await talk.http("It has ended", "POST", messages, JSON, said({"text": "more"}))
        asked = (await talk.http("One that asks", "POST", "/tasks", JSON, said(LACKING, **waits))).json()
        for path in ("/messages", "/stream"):
            await talk.http(f"Its question at {path}", "GET", f"/tasks/{asked['id']}{path}")
        answer = said({"text": "2"}, **waits)
        await talk.http("Answered", "POST", f"/tasks/{asked['id']}/messages", JSON, answer)
        callback = {"metadata": {"callback_url": "https://hooks.example.com/a", "priority": "high"}}
        begun = (await talk.http("Called back?", "POST", "/tasks", JSON, said(WAIT, **callback))).json()
        await talk.http("Canceled too", "PUT", f"/tasks/{begun['id']}/cancel")
        for verb, path in (("GET", "/tasks"), ("GET", f"/tasks/{NOBODYS}"), ("POST", f"/tasks/{NOBODYS}")):
            await talk.http("Nothing there", verb, path, JSON)
        await talk.http("No message", "POST", "/tasks", JSON, "{}")
        await talk.http("The card", "GET", "/.well-known/agent.json")


async def cards(record: Recording, folder: Path) -> None:
    """The cards and the catalog: where they are, how they are kept, and how they say where the agent is."""
    async with agent(record, JsonRpcDriver) as talk:
        shown = await talk.http("The card", "GET", CARD_PATH)
        for held in (shown.headers["etag"], f"W/{shown.headers['etag']}", '"other"', "*"):
            await talk.http("Held already", "HEAD", CARD_PATH, {"If-None-Match": held})
        for verb in ("POST", "OPTIONS"):
            await talk.http("Another verb", verb, CARD_PATH)
        await talk.http("Another host", "GET", CARD_PATH, {"Host": "evil.example.com"})
        record.heading("At the root")
        await talk.client.get(f"{ROOT}{CARD_PATH}")
        forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/tools"}
        await talk.http("Behind a proxy", "GET", CARD_PATH, forwarded)
        await talk.http("With an extension asked for", "GET", CARD_PATH, {"A2A-Extensions": EXTENSION})
    async with (
        bridge_of(folder, raw_command(), ("one", "two")) as bridge,
        client_of(record.of(bridge.app, hides_client=True)) as client,
    ):
        for path in ("/agents", f"/agents/one{CARD_PATH}", CARD_PATH, "/", "/agents/three", "/mcp"):
            record.heading(f"Two agents: {path}")
            response = await client.get(f"{ROOT}{path}")
            if etag := response.headers.get("etag"):
                await client.get(f"{ROOT}{path}", headers={"If-None-Match": etag})
        record.heading("The catalog with another verb, and from another host")
        await client.post(f"{ROOT}/agents")
        await client.get(f"{ROOT}/agents", headers={"Host": "evil.example.com"})


async def questions(record: Recording, era: str) -> None:
    """What a tool server asks, asked on, and its answers."""
    target = asking_command(era)
    async with agent(record, JsonRpcDriver, target, era=Era(era)) as talk:
        asked = await talk.send("A form", call_part("ask"))
        await talk.send("An answer that is not clear", {"text": "Ada"}, taskId=asked["id"])
        await talk.send("An answer in text", {"text": "name=Ada age=36"}, taskId=asked["id"])
        asked = await talk.send("The same form", call_part("ask"))
        content = {"data": {"name": "Ada", "age": 36, "color": "red", "tags": ["a"]}}
        await talk.send("Its answer, in data", content, taskId=asked["id"])
        asked = await talk.with_headers(a2a_extensions=EXTENSION).send("With the extension", call_part("ask"))
        await talk.send("An answer that is not what was asked", {"data": {"name": "A"}}, taskId=asked["id"])
        declined = {f"{EXTENSION}/answer": "decline"}
        await talk.send("Declined", {"text": "no"}, taskId=asked["id"], metadata=declined)
        asked = await talk.send("A page to visit", call_part("ask-url", times=1))
        await talk.send("Visited", {"text": "done"}, taskId=asked["id"])
        asked = await talk.send("Two questions", call_part("ask-twice"))
        asked = await talk.send("The first answer", {"text": "one"}, taskId=asked["id"])
        await talk.send("The second", {"text": "two"}, taskId=asked["id"])
        await talk.stream("A form in a stream", call_part("ask-one"))
    async with agent(
        record, JsonRpcDriver, era=Era.LEGACY, profile=profile_with(run={"confirm": "strict"})
    ) as talk:
        asked = await talk.send("A call that has to be confirmed", call_part("empty"))
        await talk.send("Confirmed", {"text": "yes"}, taskId=asked["id"])
        asked = await talk.send("Another", call_part("empty"))
        await talk.send("Refused", {"text": "no"}, taskId=asked["id"])
