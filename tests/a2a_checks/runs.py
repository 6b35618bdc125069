"""The checks against agents that are at hand: the bridge, a2a-sdk's own server, and that one through the bridge.

The one module here that starts a bridge; it says what each agent has to be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bridge.assembly.plan import PushPlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.mcp.client.eras import Era
from tests.a2a_checks.hooks import hooks_at
from tests.a2a_checks.report import Report
from tests.a2a_checks.run import MakeClient, over_sockets, run_checks
from tests.a2a_checks.talk import SILENCE_SECONDS
from tests.support.asking import asking_command
from tests.support.exposing import exposing
from tests.support.foreign import foreign_agent
from tests.support.in_process import client_of
from tests.support.limits import url_at
from tests.support.running import Running, call_part, config_for, raw_command, running

Messages = Mapping[str, Mapping[str, Any]]


def _call(skill: str, **arguments: Any) -> dict[str, Any]:
    return {"parts": [call_part(skill, **arguments)]}


def _skill(skill: str) -> dict[str, Any]:
    return {"parts": [{"text": "hi"}], "metadata": {"skillId": skill}}


OF_BRIDGE: Final[Messages] = {
    "completes": _call("echo", text="hi"),
    "asks": _call("echo"),
    "answers": {"parts": [{"data": {"text": "hi"}}]},
    "answers-in-part": {"parts": [{"data": {"text": 7}}]},
    "runs-long": _call("wait"),
    "needs-auth": _call("ask-url"),
    "calls-in-words": {"parts": [{"text": "echo text=hi"}]},
    "calls-another-in-words": {"parts": [{"text": "add a=1 b=2"}]},
    "gives-data": _call("add", a=1, b=2),
}
"""What the bridge is told before the raw server (which knows no ask-url) or the asking one."""

OF_SDK: Final[Messages] = {
    "completes": _skill("chunks"),
    "asks": _skill("ask"),
    "answers": {"parts": [{"text": "blue"}]},
    "answers-in-part": {"parts": [{"text": "blue"}]},
    "runs-long": _skill("slow"),
    "says": _skill("message-only"),
    "needs-auth": _skill("sign-in-and-say"),
    "gives-data": _skill("data"),
}
"""What the agent of many behaviours is told."""

OF_AGAIN: Final[Messages] = {
    "completes": _call("chunks", message="hi"),
    "asks": _call("ask", message="hi"),
    "answers": {"parts": [{"text": "blue"}]},
    "answers-in-part": {"parts": [{"text": "blue"}]},
    "runs-long": _call("slow", message="hi"),
    "says": _call("message_only", message="hi"),
    "needs-auth": _call("sign_in_and_say", message="hi"),
    "calls-in-words": {"parts": [{"text": "plain message=hi"}]},
    "calls-another-in-words": {"parts": [{"text": "chunks message=hi"}]},
}
"""What the same agent is told where its skills are tools, and those are skills again."""

TOKEN: Final = "a2a-checks-token"
OTHER_TOKEN: Final = "a2a-checks-other-token"


async def check_bridge(
    store: str = "memory:", silence_seconds: float = SILENCE_SECONDS, *, straight: bool = False
) -> Report:
    """`mcp-a2a wrap` before the raw server, which needs no login. `straight`: the requests go into the application."""
    messages = {purpose: said for purpose, said in OF_BRIDGE.items() if purpose != "needs-auth"}
    async with running(config_for(raw_command(), store=store)) as bridge:
        return await run_checks(
            bridge.base_url,
            messages=messages,
            silence_seconds=silence_seconds,
            client=_client_of(bridge, straight=straight),
        )


async def check_bridge_with_token(
    store: str = "memory:", silence_seconds: float = SILENCE_SECONDS, *, straight: bool = False
) -> Report:
    """`mcp-a2a wrap` before a server that asks for logins, itself behind tokens and with push notifications."""
    credentials = (
        Credential(Principal("checks"), TOKEN),
        Credential(Principal("other"), OTHER_TOKEN),
    )
    with hooks_at() as hooks:
        push = PushPlan(allow=frozenset({urlsplit(hooks.root_url).netloc}))
        config = config_for(
            asking_command("modern"), era=Era.MODERN, store=store, credentials=credentials, push=push
        )
        async with running(config) as bridge:
            return await run_checks(
                bridge.base_url,
                messages=OF_BRIDGE,
                bearer=TOKEN,
                other_bearer=OTHER_TOKEN,
                hooks=hooks,
                silence_seconds=silence_seconds,
                client=_client_of(bridge, straight=straight),
            )


async def check_sdk(silence_seconds: float = SILENCE_SECONDS) -> Report:
    """An agent made with a2a-sdk."""
    async with foreign_agent() as agent:
        return await run_checks(agent.url, messages=OF_SDK, silence_seconds=silence_seconds)


async def check_again(
    folder: Path, era: Era, silence_seconds: float = SILENCE_SECONDS, *, straight: bool = False
) -> Report:
    """The same agent as tools (`mcp-a2a expose`), and those as an agent again (`mcp-a2a wrap`)."""
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(foreign_agent())
        there = await stack.enter_async_context(exposing(folder, agent.url))
        bridge = await stack.enter_async_context(running(config_for(url_at(there.url), era=era)))
        return await run_checks(
            bridge.base_url,
            messages=OF_AGAIN,
            silence_seconds=silence_seconds,
            client=_client_of(bridge, straight=straight),
        )


def _client_of(bridge: Running, *, straight: bool) -> MakeClient:
    return partial(client_of, bridge.bridge.app) if straight else over_sockets
