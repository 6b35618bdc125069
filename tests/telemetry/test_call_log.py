"""The log line of a call: the caller, the subject, the outcome and the duration; never the content of messages."""

from __future__ import annotations

import contextvars
import json
import logging
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge import trace
from bridge.a2a.model.operators import OPERATOR_URI
from bridge.assembly.plan import ProcessPlan
from bridge.cli.logs import JsonFormat
from bridge.identity.callers.principals import OperatorRole, Principal
from bridge.identity.callers.verifiers import Credential
from bridge.telemetry.call_log import CallLog
from bridge.trace import NO_TRACE, Hop
from tests.support.limits import url_at
from tests.support.observed import in_row
from tests.support.recording import RecordingServer
from tests.support.running import Rpc, call_part, listening, message, raw_command

LOGGED = ProcessPlan(log_calls=True)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def fields_in(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields in the lines of calls, without their durations."""
    lines = [record for record in caplog.records if record.name == "bridge.telemetry.call_log"]
    found = [dict(record.fields) for record in lines]  # type: ignore[attr-defined]
    assert all(one.pop("ms") >= 0 for one in found)
    return found


async def test_a_call_through_both_bridges_has_a_line_in_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    async with (
        listening(RecordingServer()) as url,
        in_row(tmp_path, url_at(f"{url}/mcp"), LOGGED) as there,
    ):
        await there.mcp.tool(1, "echo", {"traceparent": PARENT}, text="what is said stays out")
        await there.mcp.tool(2, "made-up", {}, text="x")
    wrap = {
        "principal": "local",
        "face": "tools",
        "skill": "echo",
        "peer": "far",
        "state": "completed",
        "trace": TRACE,
    }
    expose = {**wrap, "face": "face", "peer": "tools"}
    nothing = {**expose, "skill": "", "peer": "", "state": "-32602", "trace": ""}
    said = fields_in(caplog)
    assert [one for one in said if one["face"] == "tools"] == [wrap]
    assert [one for one in said if one["face"] == "face"] == [expose, nothing]
    assert len(said) == 3
    assert "what is said" not in caplog.text


async def test_failed_and_refused_calls_have_their_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    credentials = [Credential(Principal("ann", skills=("fail",)), "a" * 40)]
    async with in_row(tmp_path, raw_command(), LOGGED, credentials=credentials) as there:
        client = there.mcp.client
        for token, method in (("a" * 40, "SendMessage"), ("a" * 40, "Guess"), ("b" * 40, "SendMessage")):
            rpc = Rpc(client, there.agent_url, {"authorization": f"Bearer {token}"})
            await rpc.post(method, message(call_part("fail")))
    said = [(one["principal"], one["skill"], one["state"]) for one in fields_in(caplog)]
    assert said == [("ann", "fail", "failed"), ("ann", "", "METHOD_NOT_FOUND"), ("", "", "UNAUTHENTICATED")]


@pytest.mark.proves("ops-named")
async def test_an_answer_for_another_names_the_owner_and_who_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    ops = Credential(Principal("ops", operator=OperatorRole.ANSWER), "o" * 40)
    credentials = [Credential(Principal("ann"), "a" * 40), ops]
    async with in_row(tmp_path, raw_command(), LOGGED, credentials=credentials) as there:
        mine = Rpc(there.mcp.client, there.agent_url, {"authorization": f"Bearer {'a' * 40}"})
        asking = {"authorization": f"Bearer {'o' * 40}", "A2A-Extensions": OPERATOR_URI}
        task = await mine.send(call_part("add", a=1))
        await Rpc(there.mcp.client, there.agent_url, asking).send({"data": {"b": 2}}, taskId=task["id"])
    assert [(one["principal"], one.get("owner"), one.get("answered_by")) for one in fields_in(caplog)] == [
        ("ann", None, None),
        ("ops", "ann", "ops"),
    ]
    assert " owner=ann answered_by=ops" in caplog.text


def test_a_json_line_has_the_fields_of_a_call_beside_those_of_every_line() -> None:
    record = logging.LogRecord("bridge.telemetry.call_log", logging.INFO, "", 0, "%s", ("face=a",), None)
    record.fields = {"face": "a", "ms": 1.5}
    line = json.loads(JsonFormat().format(record))
    assert (line["face"], line["ms"], line["message"]) == ("a", 1.5, "face=a")


async def test_without_the_key_a_call_has_no_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    async with listening(RecordingServer()) as url, in_row(tmp_path, url_at(f"{url}/mcp")) as there:
        await there.mcp.tool(1, "echo", {}, text="x")
        assert (there.inner.telemetry.hops.listeners, there.outer.telemetry.hops.listeners) == ((), ())
    assert fields_in(caplog) == []


def _ended(log: CallLog, skill: str) -> None:
    hop = Hop("server", "a2a", (), NO_TRACE, "SendMessage", skill=skill, state="completed")
    of_call = contextvars.copy_context()
    of_call.run(trace.call_id.set, f"call-{skill}")
    of_call.run(log.ended, hop)


async def test_lines_of_calls_are_written_together_each_with_its_own_call_and_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    log = CallLog()
    before = time.time()
    for skill in ("a", "b"):
        _ended(log, skill)
    after = time.time()
    assert caplog.records == []
    with anyio.fail_after(30):
        while len(caplog.records) < 2:
            await anyio.sleep(0.01)
    calls = [json.loads(JsonFormat().format(record))["call"] for record in caplog.records]
    assert calls == ["call-a", "call-b"]
    assert all(before <= record.created <= after for record in caplog.records)


async def test_no_name_looks_like_further_fields_of_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    log = CallLog()
    hop = Hop("server", "mcp", (log,), NO_TRACE, "tools/call", "tools", state="failed", owner="of all")
    hop.principal, hop.skill = 'corp:ann state=completed "x"', "a\u00a0peer=other"
    log.ended(hop)
    log.write()
    (line,) = [one.getMessage() for one in caplog.records if one.name == "bridge.telemetry.call_log"]
    who = r'"corp:ann state=completed \"x\""'
    assert line == (
        f'principal={who} face=tools skill="a\u00a0peer=other" peer=- state=failed ms=0.0 trace=-'
        f' owner="of all" answered_by={who}'
    )
    (fields,) = fields_in(caplog)
    assert (fields["principal"], fields["skill"]) == (hop.principal, hop.skill)


async def test_many_lines_do_not_wait_and_the_end_writes_what_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bridge")
    log = CallLog()
    for number in range(257):
        _ended(log, str(number))
    assert len(caplog.records) == 256
    log.write()
    assert [record.fields["skill"] for record in caplog.records] == [  # type: ignore[attr-defined]
        str(number) for number in range(257)
    ]
