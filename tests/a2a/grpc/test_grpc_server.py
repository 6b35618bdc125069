"""The gRPC server beside its operations: agents by tenant, admission, deadlines, cancellation, errors, health, TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import grpc
import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.compat.v0_3 import a2a_v0_3_pb2 as older
from a2a.types import a2a_pb2
from cryptography import x509
from google.protobuf.json_format import ParseDict
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2

from bridge.a2a.grpc.server import GrpcServer, GrpcSettings
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import ProcessPlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import UsageError
from bridge.http.tls import TlsFiles
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from tests.cli.call.test_command import command
from tests.support.certificates import Authority
from tests.support.drivers import PATIENCE_SECONDS
from tests.support.grpc_driver import GrpcDriver, OlderGrpcDriver, fault_of, new_channel, served_over_grpc
from tests.support.running import (
    RAW_SERVER,
    Running,
    call_part,
    config_for,
    message,
    profile_of,
    profile_with,
    raw_command,
    running,
)

ECHO, WAIT = call_part("echo", text="hello"), call_part("wait")
ALICES, BOBS = "alice-token-0123456789", "bob-token-0123456789"
CREDENTIALS = (
    Credential(Principal("alice"), ALICES),
    Credential(Principal("bob"), BOBS, Scheme.API_KEY),
)
PROFILE = profile_of("default")
BOUNDS = {"requests": PROFILE.requests, "connections": PROFILE.connections, "streams": PROFILE.streams}


@asynccontextmanager
async def serving(bridge: Bridge, **changes: Any) -> AsyncIterator[GrpcDriver]:
    async with served_over_grpc(bridge, **changes) as server, new_channel(server.port) as channel:
        yield GrpcDriver(channel)


@asynccontextmanager
async def one(**changes: Any) -> AsyncIterator[tuple[Running, GrpcDriver]]:
    async with (
        running(config_for(raw_command(), **changes)) as bridge,
        serving(bridge.bridge.whole) as driver,
    ):
        yield bridge, driver


@asynccontextmanager
async def bridge_of(folder: Path, names: Sequence[str]) -> AsyncIterator[Bridge]:
    """A bridge with agents of these names, each with a tool server of its own."""
    command = [sys.executable, "-S", "-E", str(RAW_SERVER)]
    lines = ['[bridge]\nstore = "memory:"\nport = 0']
    for name in names:
        lines.append(f'[tool_servers.{name}-tools]\ncommand = {command!r}\nera = "legacy"')
        lines.append(f'[tools_as_agent.{name}]\nfrom = ["{name}-tools"]')
    file = folder / "bridge.toml"
    file.write_text("\n".join(lines), "utf-8")
    bridge = Bridge(plan_from_file(load(file, {})))
    async with bridge.run():
        await bridge.apply(plan_from_file(load(file, {})))
        yield bridge
        await bridge.drain(0)


# Agents


@pytest.mark.proves("a2a-8.3-interfaces")
async def test_the_card_of_a_sole_agent_names_grpc_for_both_versions_without_a_tenant() -> None:
    async with one() as (bridge, _), httpx.AsyncClient() as client:
        card = (await client.get(f"{bridge.base_url}/.well-known/agent-card.json")).json()
        url = f"127.0.0.1:{bridge.bridge.whole.grpc_ports['']}"
        offered = [one for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
        assert offered == [
            {"url": url, "protocolBinding": "GRPC", "protocolVersion": version} for version in ("1.0", "0.3")
        ]
        assert {"url": url, "transport": "GRPC"} in card["additionalInterfaces"]


@pytest.mark.proves("a2a-8.3-interfaces", "a2a-10.1-grpc")
async def test_several_agents_are_told_apart_by_their_tenants(tmp_path: Path) -> None:
    async with bridge_of(tmp_path, ["left", "right"]) as bridge, serving(bridge) as driver:
        cards = {
            agent.name: agent.server.card("http://bridge.example.com:8080/x") for agent in bridge.published
        }
        for name, card in cards.items():
            offered = [one for one in card.supported_interfaces if one.protocol_binding == "GRPC"]
            said = [(one.url, one.tenant, one.protocol_version) for one in offered]
            assert said == [(f"bridge.example.com:{bridge.grpc_ports['']}", name, "1.0")]
        task = (await driver.call("SendMessage", tenant="left", **message(ECHO)))["task"]
        assert (await driver.call("GetTask", tenant="left", id=task["id"]))["id"] == task["id"]
        elsewhere = await driver.refused("GetTask", tenant="right", id=task["id"])
        assert elsewhere.reason == "TASK_NOT_FOUND"
        for tenant in ({"tenant": "middle"}, {}):
            fault = await driver.refused("GetTask", id=task["id"], **tenant)
            assert (fault.code, fault.reason) == (grpc.StatusCode.NOT_FOUND.value[0], "METHOD_NOT_FOUND")
        old = await OlderGrpcDriver(driver.client).refused("GetTask", id=task["id"])
        assert "Several agents" in old.message
        config = {"tenant": "left", "taskId": task["id"]}
        fault = await driver.refused("ListTaskPushNotificationConfigs", **config)
        assert fault.reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"


@pytest.mark.proves("a2a-8.3-interfaces", "a2a-10.1-grpc")
async def test_a_client_of_0_3_reaches_one_of_several_agents_at_the_address_of_this_agent(
    tmp_path: Path,
) -> None:
    async with (
        bridge_of(tmp_path, ["left", "right"]) as bridge,
        serving(bridge),
        served_over_grpc(bridge, "left") as own,
        new_channel(own.port) as channel,
    ):
        said = {
            agent.name: [
                (one.url, one.tenant, one.protocol_version)
                for one in agent.server.card("http://bridge.example.com:8080/x").supported_interfaces
                if one.protocol_binding == "GRPC"
            ]
            for agent in bridge.published
        }
        alone = f"bridge.example.com:{own.port}"
        assert said["left"] == [(alone, None, "1.0"), (alone, None, "0.3")]
        assert said["right"] == [(f"bridge.example.com:{bridge.grpc_ports['']}", "right", "1.0")]
        older_driver = OlderGrpcDriver(channel)
        task = await older_driver.send(ECHO)
        assert (await older_driver.get(task["id"]))["id"] == task["id"]
        current = GrpcDriver(channel)
        assert (await current.call("GetTask", tenant="left", id=task["id"]))["id"] == task["id"]
        assert (await current.refused("GetTask", tenant="right", id=task["id"])).reason == "METHOD_NOT_FOUND"


@pytest.mark.proves("a2a-10.1-grpc", "a2a-10.7-streaming")
async def test_the_client_of_a2a_sdk_calls_the_interface_that_the_card_names() -> None:
    async with one() as (bridge, _), httpx.AsyncClient() as client:
        card = await A2ACardResolver(client, bridge.base_url).get_agent_card()
        for streaming in (True, False):
            config = ClientConfig(
                streaming=streaming,
                httpx_client=client,
                supported_protocol_bindings=["GRPC"],
                grpc_channel_factory=aio.insecure_channel,
            )
            sdk = ClientFactory(config).create(card)
            request = ParseDict(message(ECHO), a2a_pb2.SendMessageRequest())
            with anyio.fail_after(PATIENCE_SECONDS):
                seen = [event async for event in sdk.send_message(request)]
            task_id = seen[0].task.id
            found = await sdk.get_task(a2a_pb2.GetTaskRequest(id=task_id))
            assert found.status.state == a2a_pb2.TASK_STATE_COMPLETED
            assert [part.text for part in found.artifacts[0].parts] == ["hello"]
            await sdk.close()


# Admission


@pytest.mark.proves("a2a-7.4-authenticated", "a2a-10.2-metadata")
async def test_callers_are_told_apart_by_their_metadata() -> None:
    async with one(credentials=CREDENTIALS) as (_, driver):
        with pytest.raises(aio.AioRpcError) as refused:
            await driver.call_of("GetTask", {"id": "x"})
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert fault_of(refused.value).reason == "UNAUTHENTICATED"
        assert "Bearer" in dict(refused.value.trailing_metadata() or ())["www-authenticate"]
        alice = driver.with_headers(authorization=f"Bearer {ALICES}")
        bob = driver.with_headers(x_api_key=BOBS)
        task = await alice.send(ECHO)
        assert (await alice.get(task["id"]))["id"] == task["id"]
        assert (await bob.refused("GetTask", id=task["id"])).reason == "TASK_NOT_FOUND"
        assert (await alice.call("GetExtendedAgentCard"))["capabilities"]["extendedAgentCard"] is True
        wrong = await driver.with_headers(authorization=f"Bearer {BOBS}").refused("GetTask", id=task["id"])
        assert wrong.reason == "UNAUTHENTICATED"
        twice = [("authorization", f"Bearer {ALICES}"), ("authorization", f"Bearer {BOBS}")]
        method = driver.client.unary_unary("/lf.a2a.v1.A2AService/GetTask")  # type: ignore[attr-defined]
        with pytest.raises(aio.AioRpcError) as both:
            await method(a2a_pb2.GetTaskRequest(id=task["id"]).SerializeToString(), metadata=twice)
        assert both.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED)


@pytest.mark.proves("a2a-7.4-authenticated")
async def test_the_extended_card_of_0_3_has_the_security_that_its_proto_names() -> None:
    async with one(credentials=CREDENTIALS) as (_, driver):
        method = driver.client.unary_unary("/a2a.v1.A2AService/GetAgentCard")  # type: ignore[attr-defined]
        answer = await method(b"", metadata=[("authorization", f"Bearer {ALICES}")])
        card = older.AgentCard.FromString(answer)
        assert {name for security in card.security for name in security.schemes} == {"bearer", "apiKey"}
        assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
        assert (card.protocol_version, card.supports_authenticated_extended_card) == ("0.3", True)


@pytest.mark.proves("a2a-7.4-authenticated")
async def test_a_stream_ends_for_a_principal_that_may_no_longer_call() -> None:
    async with one(credentials=CREDENTIALS) as (bridge, driver):
        alice = driver.with_headers(authorization=f"Bearer {ALICES}")
        async with alice.stream("SendStreamingMessage", **message(WAIT)) as events:
            seen = await events.until("WORKING")
            whole = bridge.bridge.whole
            await whole.apply(config_for(raw_command(), credentials=CREDENTIALS[1:]).plan())
            assert await events.next() is None
        assert (await alice.refused("GetTask", id=seen[0]["task"]["id"])).reason == "UNAUTHENTICATED"
        assert whole.published[0].server.open_streams == 0


@pytest.mark.proves("a2a-10.2-metadata", "a2a-4.6-extensions")
async def test_extensions_are_activated_and_repeated_in_metadata() -> None:
    async with one() as (_, driver):
        uri = "urn:mcp-a2a:tool:v1"
        call = driver.with_headers(a2a_extensions=f"{uri}, urn:nobodys").call_of("SendMessage", message(ECHO))  # type: ignore[attr-defined]
        await call
        assert dict(await call.initial_metadata())["a2a-extensions"] == uri


@pytest.mark.proves("a2a-10.2-metadata", "a2a-3.6.2-version")
async def test_another_version_than_that_of_the_service_is_refused() -> None:
    async with one() as (_, driver):
        for version in ("0.3", "0.5", "2.0"):
            fault = await driver.with_headers(**{"A2A-Version": version}).refused("GetTask", id="x")
            assert (fault.reason, fault.code) == ("VERSION_NOT_SUPPORTED", 9)
        silent = GrpcDriver(driver.client)
        silent.headers = {}
        assert (await silent.refused("GetTask", id="x")).reason == "TASK_NOT_FOUND"


# Errors


@pytest.mark.proves("a2a-10.6-errors")
async def test_an_error_names_its_invalid_fields_and_stays_small() -> None:
    async with one() as (_, driver):
        fault = await driver.refused("SendMessage", message={"role": "ROLE_USER", "parts": [{"text": "a"}]})
        assert (fault.reason, fault.fields, fault.code) == ("INVALID_PARAMS", {"message.messageId"}, 3)
        parts = [{"metadata": {"k": "v"}}] * 200
        many = await driver.refused(
            "SendMessage", message={"messageId": "m", "role": "ROLE_USER", "parts": parts}
        )
        assert many.fields
        assert len(str(many.details)) < 8192


# Deadlines and cancellation


@pytest.mark.proves("a2a-3.2.2-blocking")
async def test_before_its_deadline_a_message_is_answered_with_the_task_as_it_stands() -> None:
    async with one() as (_, driver):
        call = driver.call_of("SendMessage", message(WAIT), timeout=1.0)
        task = (await call).task
        assert task.status.state in (a2a_pb2.TASK_STATE_SUBMITTED, a2a_pb2.TASK_STATE_WORKING)
        assert (await driver.cancel(task.id))["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.proves("a2a-10.7-streaming")
async def test_a_cancelled_stream_leaves_its_task() -> None:
    async with one() as (bridge, driver):
        async with driver.working(WAIT) as (task_id, _):
            server = bridge.bridge.whole.published[0].server
            assert server.open_streams == 1
        with anyio.fail_after(PATIENCE_SECONDS):
            while server.open_streams:
                await anyio.sleep(0.01)
        assert (await driver.get(task_id))["status"]["state"] == "TASK_STATE_WORKING"
        await driver.cancel(task_id)


# Attacks


ATTACK = """
import asyncio, sys
from grpc import aio

port, subscribe, get = sys.argv[1], bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])

async def go_away():
    seen = 0
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        subscribed = channel.unary_stream("/lf.a2a.v1.A2AService/SubscribeToTask")
        read = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
        for _ in range(50):
            call = subscribed(subscribe)
            seen += bool(await call.read())
            call.cancel()
            try:
                await read(get, timeout=0.001)
            except aio.AioRpcError:  # now and then there is an answer in a millisecond
                pass
    return seen

async def main():
    print(sum(await asyncio.gather(*(go_away() for _ in range(20)))))

asyncio.run(main())
"""
"""Opens 1,000 streams and cancels each after its first event, and makes 1,000 calls with a deadline of 1 ms. It runs in
a process of its own: gRPC may cancel other calls of a process that cancels so many."""


@pytest.mark.proves("a2a-10.1-grpc")
async def test_a_thousand_cancelled_streams_and_short_deadlines_leave_nothing_behind() -> None:
    async with one() as (bridge, driver), driver.working(WAIT) as (task_id, _):
        server = bridge.bridge.whole.published[0].server
        bodies = (
            a2a_pb2.SubscribeToTaskRequest(id=task_id).SerializeToString().hex(),
            a2a_pb2.GetTaskRequest(id=task_id).SerializeToString().hex(),
        )
        with anyio.fail_after(4 * PATIENCE_SECONDS):
            attack = await anyio.run_process(
                [sys.executable, "-c", ATTACK, str(bridge.bridge.whole.grpc_ports[""]), *bodies]
            )
        assert int(attack.stdout) == 1000
        with anyio.fail_after(PATIENCE_SECONDS):
            while server.open_streams > 1:
                await anyio.sleep(0.01)
        assert (await driver.get(task_id))["status"]["state"] == "TASK_STATE_WORKING"
        await driver.cancel(task_id)


@pytest.mark.proves("a2a-10.1-grpc")
async def test_too_large_messages_and_too_much_metadata_are_refused() -> None:
    async with one() as (_, driver):
        for text, metadata in (("x" * 5_000_000, []), ("x", [(f"x-{n}", "y" * 1000) for n in range(60)])):
            said = message({"text": text})
            call = driver.client.unary_unary("/lf.a2a.v1.A2AService/SendMessage")  # type: ignore[attr-defined]
            request = ParseDict(said, a2a_pb2.SendMessageRequest()).SerializeToString()
            with pytest.raises(aio.AioRpcError) as refused:
                await call(request, metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await driver.send(ECHO))["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.proves("a2a-10.6-errors")
async def test_an_answer_above_the_bound_is_refused_with_words_that_help() -> None:
    requests = PROFILE.requests.model_copy(update={"grpc_answer_bytes": 65536})
    async with (
        running(config_for(raw_command())) as bridge,
        serving(bridge.bridge.whole, requests=requests) as driver,
    ):
        large = call_part("echo", text="x" * 70_000)
        fault = await driver.refused("SendMessage", **message(large, contextId="large"))
        assert (fault.code, fault.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "ANSWER_TOO_LARGE")
        (info,) = (detail for detail in fault.details if detail.get("reason") == "ANSWER_TOO_LARGE")
        task_id = info["metadata"]["taskId"]
        assert f"Read task {task_id} over HTTP+JSON or JSON-RPC" in fault.message
        assert "`grpc_answer_bytes` in [requests]" in fault.message
        assert (await driver.refused("GetTask", id=task_id)).reason == "ANSWER_TOO_LARGE"
        page = await driver.refused("ListTasks", contextId="large", includeArtifacts=True)
        assert "`pageSize`" in page.message
        assert await driver.listed(contextId="large", historyLength=0) == [task_id]
        async with driver.stream("SendStreamingMessage", **message(large)) as events:
            with pytest.raises(aio.AioRpcError) as refused:
                await events.rest()
        assert fault_of(refused.value).reason == "ANSWER_TOO_LARGE"
        over_http = httpx.AsyncClient(headers={"A2A-Version": "1.0"})
        async with over_http as client:
            task = (await client.get(f"{bridge.base_url}/tasks/{task_id}")).json()
        assert len(task["artifacts"][0]["parts"][0]["text"]) == 70_000


@pytest.mark.proves("a2a-10.1-grpc")
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    ],
    ids=["http1", "frames", "headers"],
)
async def test_a_connection_that_is_no_grpc_is_closed_and_harms_nobody(garbage: bytes) -> None:
    async with one() as (bridge, driver):
        port = bridge.bridge.whole.grpc_ports[""]
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(garbage)
            with anyio.fail_after(PATIENCE_SECONDS):
                try:
                    while await stream.receive():
                        pass
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
        assert (await driver.send(ECHO))["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.proves("a2a-10.6-errors")
async def test_broken_and_deep_messages_are_refused_and_unknown_methods_are_unimplemented() -> None:
    async with one() as (_, driver):
        cases = [(b"\x12\xff\xff", "PARSE_ERROR")]
        said = message({"data": [1.5]})
        nested = ParseDict(said, a2a_pb2.SendMessageRequest())
        nested.metadata.update({"k": [[[[["x"]]]]]})
        nested.message.parts[0].data.number_value = float("nan")
        cases.append((nested.SerializeToString(), "PARSE_ERROR"))
        call = driver.client.unary_unary("/lf.a2a.v1.A2AService/SendMessage")  # type: ignore[attr-defined]
        for request, reason in cases:
            with pytest.raises(aio.AioRpcError) as refused:
                await call(request)
            assert fault_of(refused.value).reason == reason
        with pytest.raises(aio.AioRpcError) as unknown:
            await driver.client.unary_unary("/lf.a2a.v1.A2AService/Nothing")(b"")  # type: ignore[attr-defined]
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


# Health, reflection, the address


@pytest.mark.proves("a2a-10.1-grpc")
async def test_health_is_told_of_the_bridge_its_services_and_its_agents(tmp_path: Path) -> None:
    async with bridge_of(tmp_path, ["left"]) as bridge, serving(bridge) as driver:
        check = driver.client.unary_unary("/grpc.health.v1.Health/Check")  # type: ignore[attr-defined]

        async def health(service: str) -> bytes:
            return await check(b"\x0a" + bytes([len(service)]) + service.encode() if service else b"")

        for service in ("", "lf.a2a.v1.A2AService", "a2a.v1.A2AService", "left", "agents/left"):
            assert await health(service) == b"\x08\x01"
        with pytest.raises(aio.AioRpcError) as unknown:
            await health("right")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.proves("a2a-10.1-grpc")
@pytest.mark.parametrize("is_on", [False, True])
async def test_descriptors_are_read_only_where_the_configuration_allows_it(is_on: bool) -> None:
    async with (
        running(config_for(raw_command())) as bridge,
        serving(bridge.bridge.whole, reflection=is_on) as driver,
    ):
        call = driver.client.stream_stream(  # type: ignore[attr-defined]
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )([reflection_pb2.ServerReflectionRequest(file_containing_symbol="lf.a2a.v1.A2AService")])
        if not is_on:
            with pytest.raises(aio.AioRpcError) as refused:
                await call.read()
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            return
        answer = await call.read()
        assert b"GetExtendedAgentCard" in answer.file_descriptor_response.file_descriptor_proto[0]


@pytest.mark.proves("a2a-10.1-grpc")
async def test_a_taken_port_is_refused_at_the_start() -> None:
    async with GrpcServer(GrpcSettings("127.0.0.1", 0, **BOUNDS)) as first:
        with pytest.raises(UsageError, match="cannot listen for gRPC"):
            GrpcServer(GrpcSettings("127.0.0.1", first.port, **BOUNDS))


@pytest.mark.proves("a2a-10.1-grpc")
async def test_certificates_of_both_sides_count_and_are_exchanged_while_the_server_runs(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    name = x509.DNSName("localhost")
    issued = authority.issues("localhost", name)
    tls = TlsFiles(issued.certificate, issued.key, authority.file)
    colleague = authority.issues("alice", x509.DNSName("alice.example.com"))
    of_alice = Credential(Principal("alice"), "dns:alice.example.com", Scheme.CONNECTION)
    async with (
        running(config_for(raw_command(), credentials=[of_alice])) as bridge,
        served_over_grpc(bridge.bridge.whole, tls=tls) as server,
    ):

        async def call(*shown: bytes) -> Any:
            credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), *shown)
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with aio.secure_channel(
                f"localhost:{server.port}", credentials, options=options
            ) as channel:
                return await GrpcDriver(channel).refused("GetTask", id="x")

        pair = colleague.key.read_bytes(), colleague.certificate.read_bytes()
        assert (await call(*pair)).reason == "TASK_NOT_FOUND"
        with pytest.raises(KeyError):  # there is no status of A2A, because the handshake fails
            await call()
        for file in (tls.certificate, tls.key):
            file.write_bytes(b"no certificate")
        assert (await call(*pair)).reason == "TASK_NOT_FOUND"
        later = authority.issues("localhost", name, as_file="localhost", days=2)
        assert later.certificate == tls.certificate
        assert (await call(*pair)).reason == "TASK_NOT_FOUND"


def test_a_bridge_without_grpc_does_not_import_it() -> None:
    script = (
        "import sys, bridge.process.serve, bridge.assembly.bridge, bridge.cli.main, bridge.cli.serve, bridge.cli.wrap;"
        "import bridge.assembly.offered_server, bridge.remotes.grpc_calls, bridge.cli.card;"
        "print([name for name in sys.modules if name.split('.')[0] in ('grpc', 'google') or 'a2a.grpc' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_address_of_grpc_needs_credentials_beyond_this_machine() -> None:
    plan = config_for(raw_command()).plan()
    place = ProcessPlan(grpc=("0.0.0.0", 50051))
    with pytest.raises(UsageError, match=r"listening on 0\.0\.0\.0"):
        replace(plan, place=place).require_safe()
    replace(plan, place=place, credentials=CREDENTIALS).require_safe()


async def test_too_many_values_of_a_request_are_refused() -> None:
    profile = profile_with(requests={"json_values": 100})
    async with one(profile=profile) as (_, driver):
        fault = await driver.refused("SendMessage", **message({"data": [1] * 200}))
        assert fault.reason == "PAYLOAD_TOO_LARGE"


async def test_check_says_which_clients_and_certificates_do_not_count_over_grpc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    issued = authority.issues("localhost", x509.DNSName("localhost"))
    tls = {"certificate": issued.certificate, "key": issued.key, "client_ca": authority.file}
    lines = ["[bridge]", 'grpc = "127.0.0.1:50051"', "[bridge.tls]", 'client_certificate = "optional"']
    lines += [f'{name} = "{file.as_posix()}"' for name, file in tls.items()]
    for name in ("left", "right"):
        lines += [f"[tool_servers.{name}-tools]", f'command = ["{name}"]']
        lines += [f"[tools_as_agent.{name}]", f'from = ["{name}-tools"]']
    file = tmp_path / "bridge.toml"
    file.write_text("\n".join(lines), "utf-8")
    done = await command("check", monkeypatch)("--offline", "--json", str(file))
    notes = json.loads(done.out)["notes"]
    assert [note.partition(":")[0] for note in notes if "gRPC" in note] == [
        "bridge.tls.client_certificate",
        "bridge.grpc",
    ]
