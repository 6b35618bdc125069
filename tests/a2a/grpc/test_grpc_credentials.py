"""What the client over gRPC shows to whom: credentials, certificates, webhooks, and the binding that the user chose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import grpc
import httpx2
import pytest
from cryptography import x509
from grpc import aio

from bridge.a2a.client.agent_card import FoundCard
from bridge.a2a.client.agent_client import AgentClient, AgentRefusedError
from bridge.a2a.client.credentials import Credentials
from bridge.a2a.client.http import NotReachedError
from bridge.a2a.client.interfaces import Trust, interfaces_of, permitted_interfaces
from bridge.a2a.client.transports import ANSWER_LIMIT_BYTES, TransportOptions
from bridge.a2a.model.objects import AgentCard, GetTaskRequest, Task, TaskPushNotificationConfig
from bridge.a2a.model.operations import GET_TASK
from bridge.assembly.plan import PushPlan
from bridge.errors import PeerError
from bridge.http.client import PeerCredentials, RenewableCredentials
from bridge.http.tls import PeerTls, TlsFiles
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.verifiers import Credential, Scheme
from bridge.remotes.grpc_calls import GrpcTransports
from tests.a2a.grpc.test_grpc_client import CARD, found_at, saying
from tests.support.certificates import Authority
from tests.support.grpc_agents import methods_over_grpc, relay_to
from tests.support.grpc_driver import served_over_grpc
from tests.support.limits import client_options, deadlines
from tests.support.running import config_for, raw_command, running

TOKEN, KEY = "alice-token-0123456789", "alice-key-0123456789"
BEARER: Final = Credential(Principal("alice"), TOKEN)
API_KEY: Final = Credential(Principal("alice"), KEY, Scheme.API_KEY)

Call = Callable[..., AbstractAsyncContextManager[AgentClient]]


@asynccontextmanager
async def client_at(found: FoundCard, **options: Any) -> AsyncIterator[AgentClient]:
    async with httpx2.AsyncClient() as http, GrpcTransports() as calls:
        yield AgentClient(http, found, replace(client_options(**options), grpc=calls.transports))


def listing(*listed: tuple[str, str, str], at: str = "https://agents.example.com/", **more: Any) -> FoundCard:
    interfaces = [
        {"protocolBinding": binding, "protocolVersion": version, "url": url}
        for binding, version, url in listed
    ]
    return FoundCard(at, b"", AgentCard.model_validate({**CARD, "supportedInterfaces": interfaces, **more}))


# Credentials


@pytest.mark.proves("a2a-10-called", "map-trust")
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize(
    "given", [Credentials(bearer=TOKEN), Credentials(api_key=KEY)], ids=["bearer", "key"]
)
async def test_credentials_are_metadata_and_go_only_to_a_trusted_origin(
    given: Credentials, version: str
) -> None:
    async with (
        running(config_for(raw_command(), credentials=(BEARER, API_KEY), store="memory:")) as served,
        served_over_grpc(served.bridge.whole) as server,
        httpx2.AsyncClient() as http,
    ):
        card = (await http.get(f"{served.base_url}/.well-known/agent-card.json")).json()
        listed = [one for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
        chosen = [one for one in listed if one["protocolVersion"] == version]
        found = FoundCard(
            served.base_url, b"", AgentCard.model_validate({**card, "supportedInterfaces": chosen})
        )
        origin = f"http://127.0.0.1:{server.port}"
        with pytest.raises(PeerError) as refused:
            async with client_at(found, credentials=given):
                pass
        assert str(refused.value) == (
            f"the card at {served.base_url} says to call {origin}, which is another origin, so the credentials are not"
            f' sent there. If you trust it, add "{origin}" to its `trust`'
        )
        trust = Trust(frozenset({origin}))
        async with client_at(found, credentials=given, trust=trust) as agent:
            task = await agent.send(saying("add", a=2, b=3))
            assert isinstance(task, Task)
            assert (await agent.get(task.id)).id == task.id
        wrong = Credentials(bearer="wrong") if given.bearer else Credentials(api_key="wrong")
        told: list[str] = []
        async with client_at(found, credentials=wrong, trust=trust, on_refusal=told.append) as agent:
            with pytest.raises(AgentRefusedError, match="UNAUTHENTICATED"):
                await agent.get(task.id)
        assert told
        assert "wrong" not in told[0]


@pytest.mark.proves("map-trust")
def test_the_error_names_the_origin_to_trust_for_an_address_without_a_scheme() -> None:
    found = listing(("GRPC", "1.0", "agents.example.com:50051"))
    with pytest.raises(PeerError, match=r'add "https://agents\.example\.com:50051" to its `trust`$'):
        permitted_interfaces(found, Trust(), has_credentials=True, grpc=True)
    for origin in ("https://agents.example.com:50051", "http://agents.example.com:50051"):
        trust = Trust(frozenset({origin}))
        [(interface, _)] = permitted_interfaces(found, trust, has_credentials=True, grpc=True)
        assert interface.url == origin
    on_line = Trust(on_command_line=True)
    with pytest.raises(PeerError, match=r"add --trust https://agents\.example\.com:50051$"):
        permitted_interfaces(found, on_line, has_credentials=True, grpc=True)


class Renewing(RenewableCredentials):
    """A source with a new token after each refusal."""

    def __init__(self) -> None:
        self.number = 1
        self.lacked: list[Sequence[str]] = []

    async def __call__(self) -> PeerCredentials:
        await anyio.lowlevel.checkpoint()
        return PeerCredentials({"Authorization": f"Bearer token-{self.number}"})

    def refused(self, shown: PeerCredentials) -> None:
        self.number += 1

    async def widened(self, shown: PeerCredentials, scopes: Sequence[str]) -> bool:
        self.lacked.append(scopes)
        self.number += 1
        return len(self.lacked) == 1


@pytest.mark.proves("a2a-10-called")
@pytest.mark.parametrize(
    ("code", "challenge", "taken"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "Bearer", "token-2"),
        (grpc.StatusCode.PERMISSION_DENIED, 'Bearer error="insufficient_scope", scope="write"', "token-2"),
        (grpc.StatusCode.UNAUTHENTICATED, "Bearer", "none"),
    ],
)
async def test_a_refused_call_is_made_once_more_with_other_credentials(
    code: grpc.StatusCode, challenge: str, taken: str
) -> None:
    shown: list[str] = []

    async def answer(_: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        shown.append(str(dict(context.invocation_metadata() or ())["authorization"]))
        if shown[-1] != f"Bearer {taken}":
            await context.abort(code, "no", (("www-authenticate", challenge),))
        return b"\x0a\x01t\x1a\x02\x08\x02"  # task t is at work

    source = Renewing()
    async with (
        methods_over_grpc({"GetTask": grpc.unary_unary_rpc_method_handler(answer)}) as port,
        GrpcTransports() as calls,
    ):
        [(interface, dialect)] = interfaces_of(found_at(f"http://127.0.0.1:{port}").card, grpc=True)
        terms = TransportOptions(
            source, (), lambda _: None, deadlines(), ANSWER_LIMIT_BYTES, frozenset(), on_hop=None
        )
        assert calls.transports is not None
        transport = calls.transports(interface, dialect, terms, 1000)
        if taken == "none":
            with pytest.raises(PeerError, match="UNAUTHENTICATED: no"):
                await transport.perform(GET_TASK, GetTaskRequest(id="t"))
        else:
            assert (await transport.perform(GET_TASK, GetTaskRequest(id="t"))).id == "t"
    assert shown == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.proves("a2a-10-called")
async def test_a_key_in_a_query_has_no_place_in_grpc_and_is_not_sent() -> None:
    scheme = {"apiKeySecurityScheme": {"location": "query", "name": "key"}}
    required = {"securitySchemes": {"asked": scheme}, "securityRequirements": [{"schemes": {"asked": {}}}]}
    found = listing(("GRPC", "1.0", "http://127.0.0.1:1"), at="http://127.0.0.1:1/", **required)
    async with client_at(found, credentials=Credentials(api_key=KEY)) as agent:
        with pytest.raises(PeerError, match="gRPC has no query: call it over HTTP"):
            await agent.get("t")


# Webhooks


@pytest.mark.proves("a2a-10-called")
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_webhook_is_registered_and_removed(version: str) -> None:
    push = PushPlan(frozenset({"127.0.0.1:9"}))
    async with (
        running(config_for(raw_command(), store="memory:", push=push)) as served,
        served_over_grpc(served.bridge.whole) as server,
    ):
        found = found_at(f"127.0.0.1:{server.port}", version)
        capable = found.card.changed(capabilities=found.card.capabilities.changed(push_notifications=True))
        async with client_at(replace(found, card=capable)) as agent:
            assert agent.notifies
            task = await agent.send(saying("add", a=2, b=3))
            assert isinstance(task, Task)
            hook = TaskPushNotificationConfig(
                task_id=task.id, id="h", url="http://127.0.0.1:9/hook", token="t"
            )
            made = await agent.create_push_config(hook)
            assert (made.task_id, made.id, made.url) == (task.id, "h", hook.url)
            await agent.delete_push_config(task.id, "h")
            with pytest.raises(AgentRefusedError):
                await agent.create_push_config(hook.changed(url="http://127.0.0.1:8/hook"))


# TLS


@pytest.mark.proves("a2a-10-called", "map-trust")
async def test_certificates_of_both_sides_are_checked_and_exchanged(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "Another authority")
    issued = authority.issues("localhost", x509.DNSName("localhost"))
    own = authority.issues("alice", x509.DNSName("alice.example.com"))
    of_alice = Credential(Principal("alice"), "dns:alice.example.com", Scheme.CONNECTION)
    tls = TlsFiles(issued.certificate, issued.key, authority.file)
    async with (
        running(config_for(raw_command(), store="memory:", credentials=[of_alice])) as served,
        served_over_grpc(served.bridge.whole, tls=tls) as server,
        httpx2.AsyncClient() as http,
        GrpcTransports() as calls,
    ):
        url = f"https://localhost:{server.port}"

        def agent_with(shown: PeerTls | None, at: str = url) -> AgentClient:
            options = client_options(credentials=Credentials(tls=shown), grpc=calls.transports)
            return AgentClient(http, listing(("GRPC", "1.0", at), at=f"{at}/"), options)

        both = PeerTls(own.certificate, own.key, authority.file)
        agent = agent_with(both)
        task = await agent.send(saying("add", a=2, b=3))
        assert isinstance(task, Task)
        for shown, at in (
            (PeerTls(ca=authority.file), url),  # no certificate of the client
            (PeerTls(own.certificate, own.key, other.file), url),  # another authority of the server
            (PeerTls(own.certificate, own.key), url),  # the authorities of the system
            (both, f"https://127.0.0.1:{server.port}"),  # another name than that of the certificate
            (both, f"http://localhost:{server.port}"),  # no TLS
        ):
            with pytest.raises(NotReachedError):
                await agent_with(shown, at).get(task.id)
        authority.issues("alice", x509.DNSName("mallory.example.com"), as_file="alice", days=2)
        with pytest.raises(AgentRefusedError, match="UNAUTHENTICATED"):
            await agent.get(task.id)
        authority.issues("alice", x509.DNSName("alice.example.com"), as_file="alice", days=3)
        assert (await agent.get(task.id)).id == task.id
        own.key.write_bytes(b"no key")  # as over HTTP, the previous files stay in use
        assert (await agent.get(task.id)).id == task.id
        with pytest.raises(NotReachedError, match=r"alice\.key"):
            await agent_with(PeerTls(own.certificate, own.key, other.file)).get(task.id)


# The binding that the user prefers


BOTH: Final = (
    ("JSONRPC", "1.0", "http://127.0.0.1:2/"),
    ("GRPC", "1.0", "http://127.0.0.1:1"),
    ("HTTP+JSON", "1.0", "http://127.0.0.1:3/"),
    ("GRPC", "0.3", "http://127.0.0.1:4"),
)


@pytest.mark.proves("a2a-8.3-interfaces")
@pytest.mark.parametrize(
    ("bindings", "is_installed", "called"),
    [
        ((), True, ["JSONRPC 1.0", "HTTP+JSON 1.0"]),
        (("GRPC",), True, ["GRPC 1.0", "GRPC 0.3"]),
        (("GRPC", "JSONRPC"), True, ["GRPC 1.0", "GRPC 0.3", "JSONRPC 1.0"]),
        (("HTTP+JSON", "GRPC"), True, ["HTTP+JSON 1.0", "GRPC 1.0", "GRPC 0.3"]),
        (("GRPC", "JSONRPC"), False, ["JSONRPC 1.0"]),
    ],
)
def test_the_bindings_of_the_user_count_in_their_order(
    bindings: tuple[str, ...], is_installed: bool, called: list[str]
) -> None:
    spoken = interfaces_of(listing(*BOTH).card, grpc=is_installed, bindings=bindings)
    assert [f"{one.protocol_binding} {one.protocol_version}" for one, _ in spoken] == called


@pytest.mark.proves("a2a-8.3-interfaces")
def test_a_card_without_an_allowed_binding_is_refused_with_both() -> None:
    card = listing(BOTH[0]).card
    words = "Least offers JSONRPC 1.0, and this client may call it over GRPC and HTTP[+]JSON "
    with pytest.raises(PeerError, match=words):
        interfaces_of(card, grpc=True, bindings=("GRPC", "HTTP+JSON"))


@pytest.mark.proves("a2a-10-called")
async def test_an_agent_with_both_is_called_over_the_preferred_binding_and_else_over_the_next() -> None:
    async with (
        running(config_for(raw_command(), store="memory:")) as served,
        served_over_grpc(served.bridge.whole) as server,
        relay_to(server.port) as relay,
    ):
        grpc_at, json_at = f"http://127.0.0.1:{relay.port}", served.base_url
        found = listing(("JSONRPC", "1.0", json_at), ("GRPC", "1.0", grpc_at), at=json_at)
        async with client_at(found, bindings=("GRPC", "JSONRPC")) as agent:
            assert isinstance(await agent.send(saying("add", a=2, b=3)), Task)
            assert (agent.interface.protocol_binding, relay.accepted) == ("GRPC", 1)
        async with client_at(found) as agent:
            assert isinstance(await agent.send(saying("add", a=2, b=3)), Task)
            assert (agent.interface.protocol_binding, relay.accepted) == ("JSONRPC", 1)
        await relay.drop_all(refuse=True)
        async with client_at(found, bindings=("GRPC", "JSONRPC")) as agent:
            assert isinstance(await agent.send(saying("add", a=2, b=3)), Task)
            assert agent.interface.protocol_binding == "JSONRPC"


@pytest.mark.proves("config-faults")
def test_check_names_the_agents_whose_binding_lacks_its_packages(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(
        '[agents.weather]\ncard = "https://weather.example.com"\nbindings = ["GRPC"]\n'
        '[agents_as_tools.all]\nfrom = ["weather"]\n',
        "utf-8",
    )
    without = "import sys; sys.modules['grpc'] = None; from bridge.cli.main import main; main()"
    command = [sys.executable, "-c", without, "check", "--offline", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "agents.weather.bindings: gRPC needs its packages: " in done.stdout + done.stderr
