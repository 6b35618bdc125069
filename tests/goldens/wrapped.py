"""Tools as an agent: what the bridge asks of a tool server, over HTTP and stdio, in each era."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from bridge.mcp.client.eras import Era
from tests.goldens.mcp_peer import McpPeer
from tests.goldens.recording import ROOT, Recording
from tests.support.asking import asking_argv
from tests.support.drivers import JsonRpcDriver
from tests.support.in_process import client_of
from tests.support.limits import command_of, url_at
from tests.support.running import RAW_SERVER, call_part, config_for, listening, wrapped


async def server(record: Recording, era: Era, *, is_modern: bool) -> None:
    """Each kind of call; what an A2A client was answered stands in other recordings."""
    peer = McpPeer(is_modern)
    async with listening(record.of(peer.app(), "server")) as url:
        record.heading("The start")
        target = url_at(f"{url}/mcp", {"Authorization": "Bearer token-1"})
        async with wrapped(config_for(target, era=era)) as bridge:
            async with client_of(bridge.app) as client:
                driver = JsonRpcDriver(client, f"{ROOT}{bridge.path}")
                await _calls(record, driver, peer)
            await bridge.engine.drain(0)
            record.heading("The end")


async def over_stdio(record: Recording, folder: Path, era: Era) -> None:
    """What the bridge writes to a tool server that it started, line by line."""
    written = folder / "written"
    argv = [sys.executable, str(RAW_SERVER)] if era is Era.LEGACY else asking_argv("modern")
    command = command_of(("sh", "-c", f"tee {shlex.quote(str(written))} | {shlex.join(argv)}"))
    async with wrapped(config_for(command, era=era)) as bridge:
        async with client_of(bridge.app) as client:
            driver = JsonRpcDriver(client, f"{ROOT}{bridge.path}")
            await driver.call("SendMessage", **record.message(call_part("echo", text="é")))
            if era is Era.LEGACY:
                await driver.call("SendMessage", **record.message(call_part("link")))
                async with driver.working(call_part("wait")) as (task_id, events):
                    await driver.cancel(task_id)
                    await events.rest()
            else:
                asked = (await driver.call("SendMessage", **record.message(call_part("ask-one"))))["task"]
                await driver.call("SendMessage", **record.message({"text": "yes"}, taskId=asked["id"]))
        await bridge.engine.drain(0)
    for line in written.read_text(encoding="utf-8").splitlines():
        if '"requestId":"listen-' not in line:  # at its end, which may come before that is written
            record.line(line)


async def _calls(record: Recording, driver: JsonRpcDriver, peer: McpPeer) -> None:
    record.heading("A call")
    await driver.call("SendMessage", **record.message(call_part("echo", text="é"), contextId="c-1"))
    record.heading("A call that fails")
    await driver.call("SendMessage", **record.message(call_part("fail")))
    record.heading("A call that reports progress")
    await driver.call("SendMessage", **record.message(call_part("progress")))
    record.heading("A call that asks")
    asked = (await driver.call("SendMessage", **record.message(call_part("ask"))))["task"]
    record.heading("The answer")
    await driver.call("SendMessage", **record.message({"text": "Ada"}, taskId=asked["id"]))
    record.heading("A call that is cancelled")
    at_once = {"returnImmediately": True}
    params = record.message(call_part("wait"), configuration=at_once)
    waiting = (await driver.call("SendMessage", **params))["task"]
    await peer.waiting.wait()
    await driver.cancel(waiting["id"])
    await peer.cancelled.wait()
    if not peer.is_modern:
        await record.answered("notifications/cancelled")
