"""A refused tool call is recorded like a refused message to an agent: in the audit, the metrics and the log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bridge.assembly.plan import AuditPlan, ProcessPlan
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential
from bridge.telemetry.families import text_of
from tests.assembly.test_admission import guarded
from tests.assembly.test_issuers import AUDIENCES
from tests.audit.test_lines import MANY, audited, lines_of
from tests.support.issuer import TokenIssuer, bearer, issuer_at
from tests.support.mcp_wire import MODERN, Http
from tests.support.running import Rpc, call_part, listening, message, profile_with

ADA = Credential(Principal("ada"), "a" * 40)
SCOPES = (("tools:read", ("echo",)), ("tools:write", ("hold",)))


async def test_a_call_for_which_a_token_lacks_the_scope_is_told_over_both_protocols(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, issuer = tmp_path / "audit.jsonl", TokenIssuer("", metadata={})
    place = ProcessPlan(
        state=tmp_path / "state",
        cache=tmp_path / "cache",
        metrics=("127.0.0.1", 0),
        log_calls=True,
        audit=AuditPlan(path, MANY, MANY),
    )
    caplog.set_level(logging.INFO, "bridge.telemetry.call_log")
    async with listening(issuer) as issuer.url:
        trusted = {"corp": issuer_at(issuer.url, AUDIENCES, scopes=SCOPES)}
        async with guarded(tmp_path, issuers=trusted, place=place) as (there, _):
            mcp = Http(there.client, f"{there.url}/mcp/m", MODERN)
            called = mcp.message(1, "tools/call", {"name": "hold", "arguments": {}})
            refused = await mcp.post(called, **bearer(issuer.token("api://m", scope="tools:read")))
            assert refused.status_code == 403
            rpc = Rpc(
                there.client, f"{there.url}/agents/a", bearer(issuer.token("api://a", scope="tools:read"))
            )
            assert (await rpc.post("SendMessage", message(call_part("hold")))).status_code == 403
            assert there.bridge.telemetry is not None
            metrics = text_of(await there.bridge.telemetry.families()).decode()
    told = ("event", "decision", "error", "principal", "method", "skill")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [[one[name] for name in told] for one in lines if one["event"] == "refused"] == [
        ["refused", "refused", "HTTP_403", "corp:alice", "tools/call", "hold"],
        ["refused", "refused", "FORBIDDEN", "corp:alice", "SendMessage", "hold"],
    ]
    for count in (
        'mcp_server_operation_duration_seconds_count{method="tools/call",face="m",skill="hold",outcome="HTTP_403"} 1',
        'a2a_server_operation_duration_seconds_count{method="SendMessage",face="a",skill="hold",outcome="FORBIDDEN"} 1',
    ):
        assert count in metrics
    said = [one.getMessage().partition(" ms=")[0] for one in caplog.records if one.name.endswith("call_log")]
    assert said == [
        "principal=corp:alice face=m skill=hold peer=- state=HTTP_403",
        "principal=corp:alice face=a skill=hold peer=- state=FORBIDDEN",
    ]


async def test_a_stream_for_which_there_is_no_place_is_told_as_a_call_of_its_principal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.telemetry.call_log")
    profile = profile_with(streams={"open": 1})
    async with audited(tmp_path, credentials=[ADA], profile=profile, log_calls=True) as there:
        url = f"{there.url}/agents/tools/message:stream"
        headers = {"A2A-Version": "1.0", "authorization": f"Bearer {'a' * 40}"}
        held, said = message(call_part("wait")), message(call_part("echo", text="x"))
        async with there.http.stream("POST", url, json=held, headers=headers) as first:
            assert first.status_code == 200
            assert (await there.http.post(url, json=said, headers=headers)).status_code == 503
    (refused,) = [one for one in lines_of(there.file) if one.get("decision") == "refused"]
    assert refused == {
        "event": "call",
        "principal": "ada",
        "face": "tools",
        "protocol": "a2a",
        "method": "SendStreamingMessage",
        "decision": "refused",
        "outcome": "failed",
        "error": "UNAVAILABLE",
    }
    said_of = [
        one.getMessage().partition(" ms=")[0] for one in caplog.records if one.name.endswith("call_log")
    ]
    assert said_of[0] == "principal=ada face=tools skill=- peer=- state=UNAVAILABLE"
