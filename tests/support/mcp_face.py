"""A face for our MCP server. As a program, `python mcp_face.py`, it is served over stdio.

echo       gives what it was called with back    result     gives `result` back as the result
report     reports each of `reports`             ask        asks `questions`, gives the answers
rounds     asks in rounds, a modern client       big        a text of `bytes` bytes
wait       answers only when it is cancelled     cancelled  how many waits were, once there is one
grow       adds a tool and says so               crash      fails with words that are nobody's business
refuse     a JSON-RPC error                      print      prints to stdout in every way there is
half       half a character, twice
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import anyio

from bridge import trace
from bridge.errors import PeerError, echoed
from bridge.identity.callers.principals import MayUse, OfferedNames, may_use_everything
from bridge.identity.tokens.caller_token import CallerToken
from bridge.mcp.server.face import INVALID_PARAMS, IncomingCall, McpRefusal, TaskWork
from bridge.mcp.server.server import McpServer
from tests.support.limits import mcp_limits

Json = dict[str, Any]

NAMES: Final = (
    "ask",
    "big",
    "cancelled",
    "crash",
    "echo",
    "grow",
    "half",
    "print",
    "refuse",
    "report",
    "result",
)
SECRET: Final = "the password is swordfish"
FORM: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass
class Face:
    """What the tests serve; `grow` needs to know its server."""

    server: McpServer | None = None
    name: str = "face"
    version: str = "1.2.3"
    title: str | None = "A Face"
    instructions: str | None = "Call them."
    website_url: str | None = "https://example.com/"
    icons: Sequence[Json] = ({"src": "https://example.com/icon.png"},)
    names: list[str] = field(default_factory=lambda: [*NAMES, "rounds", "wait"])
    tasks: None = None
    requests: None = None
    has_logs: bool = False
    waiting: int = 0
    stopped: int = 0
    moved: anyio.Event = field(default_factory=anyio.Event)

    def tool(self, name: str, may_use: MayUse = may_use_everything, **_: bool) -> Json | None:
        return next((tool for tool in self.tools(may_use) if tool["name"] == name), None)

    def unknown_tool(self, name: str) -> McpRefusal:
        return McpRefusal(INVALID_PARAMS, f"Unknown tool: {echoed(name)}")

    def tools(self, may_use: MayUse = may_use_everything, **_: bool) -> Sequence[Json]:
        number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        more = {"result": {"outputSchema": number, "x-unknown": {"kept": None}}}
        return [
            {"name": name, "inputSchema": {"type": "object"}, **more.get(name, {})}
            for name in self.names
            if may_use(OfferedNames(name))
        ]

    def tool_called(self, name: str, arguments: Json) -> str | None:
        """Each call is one of the tool that it names."""
        return name

    def names_of(self, tool: str) -> OfferedNames:
        """Each tool has one name."""
        return OfferedNames(tool)

    def work_of(self, name: str, arguments: Json, principal: str) -> TaskWork:
        """No peer runs its tools."""
        return TaskWork(name, "", "")

    @property
    def caller_issuers(self) -> Mapping[str, str]:
        """No tool acts for its caller."""
        return {}

    def resources(self, may_use: MayUse = may_use_everything) -> Sequence[Json]:
        return [{"uri": "a2a://one/card", "name": "card", "x-unknown": 1}]

    def templates(self) -> Sequence[Json]:
        return [{"uriTemplate": "a2a://{agent}/card", "name": "cards"}]

    def prompts(self, may_use: MayUse = may_use_everything) -> Sequence[Json]:
        return [{"name": "hello", "arguments": [{"name": "who", "required": True}]}]

    async def read(
        self,
        uri: str,
        principal: str,
        may_use: MayUse = may_use_everything,
        caller: CallerToken | None = None,
    ) -> Json:
        if uri != "a2a://one/card":
            raise McpRefusal(INVALID_PARAMS, f"There is no {uri}", {"uri": uri})
        return {"contents": [{"uri": uri, "text": f"for {principal}", "x-unknown": [None]}]}

    async def prompt(
        self, name: str, arguments: Mapping[str, str], may_use: MayUse = may_use_everything
    ) -> Json:
        words = f"{name}, {arguments['who']}"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}

    async def call(self, incoming: IncomingCall) -> Json:
        tool: Callable[[IncomingCall], Any] = getattr(self, f"_{incoming.name}")
        result: Json = await tool(incoming)
        return result

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not condition():
            await self.moved.wait()

    async def _echo(self, incoming: IncomingCall) -> Json:
        unseen = ("ask", "ask_here", "report", "log", "may_use", "may_see")
        seen = {name: getattr(incoming, name) for name in incoming.__slots__ if name not in unseen}
        seen["trace"] = asdict(trace.context.get())
        return {"content": [], "structuredContent": seen}

    async def _result(self, incoming: IncomingCall) -> Json:
        result: Json = incoming.arguments["result"]  # type: ignore[assignment]
        return result

    async def _report(self, incoming: IncomingCall) -> Json:
        for report in incoming.arguments["reports"]:  # type: ignore[union-attr]
            incoming.report(*report)  # type: ignore[misc]
        return said("done")

    async def _ask(self, incoming: IncomingCall) -> Json:
        try:
            answers = await incoming.ask(incoming.arguments["questions"])  # type: ignore[arg-type]
        except PeerError as exc:
            return {**said(str(exc)), "isError": True}
        return {"content": [], "structuredContent": dict(answers)}

    async def _rounds(self, incoming: IncomingCall) -> Json:
        if incoming.input_responses is None:
            request = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}}
            return {
                "resultType": "input_required",
                "inputRequests": {"who": request},
                "requestState": "state-1",
            }
        state, answers = incoming.request_state, incoming.input_responses
        return {"content": [], "structuredContent": {"state": state, "answers": answers}}

    async def _big(self, incoming: IncomingCall) -> Json:
        return said("x" * incoming.arguments["bytes"])  # type: ignore[operator]

    async def _wait(self, incoming: IncomingCall) -> Json:
        self.waiting += 1
        self._move()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.stopped += 1
            self._move()
            raise
        raise AssertionError

    async def _cancelled(self, incoming: IncomingCall) -> Json:
        await self.until(lambda: self.stopped > 0)
        return said(str(self.stopped))

    async def _grow(self, incoming: IncomingCall) -> Json:
        assert self.server is not None
        self.names.append("grown")
        self.server.changed()
        return said("grown")

    async def _crash(self, incoming: IncomingCall) -> Json:
        raise RuntimeError(SECRET)

    async def _half(self, incoming: IncomingCall) -> Json:
        incoming.report(1, None, "half \ud83d.")
        return said("half \ud83d.")

    async def _refuse(self, incoming: IncomingCall) -> Json:
        raise McpRefusal(INVALID_PARAMS, "not today", {"until": "tomorrow"})

    async def _print(self, incoming: IncomingCall) -> Json:
        print("printed", flush=True)
        os.write(1, b"written\n")
        subprocess.run(["/bin/echo", "echoed"], check=True)
        return said("printed")

    async def _grown(self, incoming: IncomingCall) -> Json:
        return said("I am new")

    def _move(self) -> None:
        self.moved.set()
        self.moved = anyio.Event()


def said(words: str) -> Json:
    """A result of one text."""
    return {"content": [{"type": "text", "text": words}]}


async def _main() -> None:
    face = Face()
    face.server = McpServer(face, mcp_limits())
    await face.server.run_stdio()


if __name__ == "__main__":
    print("before", file=sys.stdout)  # stays in the buffer until the wire is out of its reach
    anyio.run(_main)
    print("after", flush=True)
