"""What programs read beside the wire, and what a release leaves behind for the next one, as files in `snapshots/`.

Texts are compared: the library, the command line, errors, tables, derived keys, metrics, log lines and audit lines.
`sealed.json` and `store.sql` were made once and are opened: handles, logins, cookies and tasks of an earlier release
have to work in this one.

`python -m tests.goldens.test_snapshots` writes the texts anew. It writes what is opened only where that is named:
`python -m tests.goldens.test_snapshots sealed.json store.sql` gives up what an earlier release has made.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import logging
import os
import pkgutil
import re
import sqlite3
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args
from uuid import UUID

import anyio
import click
import httpx2
import pytest
from mcp.server import MCPServer

import bridge
import bridge.errors
import bridge.testing
from bridge.a2a.model.objects import TaskPushNotificationConfig
from bridge.a2a.push.signatures import PushSigner
from bridge.a2a.tasks.webhooks import SealedWebhook, WebhookRecords
from bridge.assembly.bridge import Bridge
from bridge.assembly.own_callers import OwnCallers
from bridge.assembly.plan import AuditPlan, PushPlan
from bridge.assembly.plan_digest import plan_bytes
from bridge.assembly.plan_from_file import plan_from_file
from bridge.assembly.telemetry import ReloadCount
from bridge.audit.chain import ChainHead, sealed
from bridge.audit.recorder import AuditRecorder
from bridge.audit.verification import verified
from bridge.cli.logs import JsonFormat
from bridge.cli.main import cli
from bridge.console.sign_ins import BegunSignIn, ConsoleSession, SessionSeal
from bridge.errors import BridgeError, fault_policy_of
from bridge.identity.callers.verifiers import Scheme
from bridge.identity.logins.kept_logins import AwaitedLogin, BegunLogin, BegunProof, Login, LoginKey
from bridge.identity.logins.login_files import LoginFiles
from bridge.identity.logins.login_records import LoginRecords, login_id
from bridge.identity.pages.login_links import BrowserPerson, LoginLink, LoginSeals, PendingLogin, PendingProof
from bridge.identity.tokens.caller_token import Caller, CallerToken
from bridge.notices import (
    AnswerTaken,
    LoginNotice,
    LoginTaken,
    PushAttempt,
    PushReceived,
    TokenNotice,
    WebhookAsked,
)
from bridge.replicas.proofs import ProofPurpose, Proofs
from bridge.seal import Handle, HandleBinding, HandlePurpose, Seal, agent_mark, request_digest
from bridge.store.outbox import Webhook, WebhookKey
from bridge.store.postgres.command_seals import CommandPlace, CommandSeals
from bridge.store.postgres.table_steps import AGENT, LOGINS, REPLICAS, Namespace
from bridge.store.sqlite import SQLiteStore
from bridge.store.sqlite_schema import APPLICATION_ID, STEPS
from bridge.telemetry.call_log import CallLog
from bridge.telemetry.families import KnownNames, MetricFamily
from bridge.telemetry.metrics import HopMetrics, families_of
from bridge.trace import Hop, TraceContext
from tests.support.running import listening

FOLDER: Final = Path(__file__).parent / "snapshots"
AGAIN: Final = "python -m tests.goldens.test_snapshots"

KEY: Final = b"the key of the snapshots, for nothing else"
NOW: Final = 1_800_000_000.0
LATER: Final = 4_000_000_000.0
PARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ID: Final = UUID("0190a1b2-0000-7000-8000-00000000000a")


# The library, the command line, and errors


def library() -> str:
    """The names that `import bridge` gives, with their signatures."""
    testing = ("Answer", "File", "TestedAgent", "agent")
    lines = [f"bridge.{name}{_signature(getattr(bridge, name))}" for name in sorted(bridge.__all__)]
    lines.append(f"bridge.testing.State {' '.join(get_args(bridge.testing.State))}")
    for name in testing:
        one = getattr(bridge.testing, name)
        lines.append(f"bridge.testing.{name}{_signature(one)}")
        inner = vars(one).items() if inspect.isclass(one) else ()
        lines += [
            f"bridge.testing.{name}.{key}{_signature(it)}" for key, it in inner if not key.startswith("_")
        ]
    public = (one for one in vars(bridge.errors).values() if inspect.isclass(one))
    errors = sorted(one.__name__ for one in public if issubclass(one, BridgeError))
    return _text([*lines, *(f"bridge.errors.{name}" for name in errors)])


def _signature(one: Any) -> str:
    if not callable(one) or not (inspect.isroutine(one) or inspect.isclass(one)):
        return ""
    signature = inspect.signature(one)
    plain = (str, int, type(None))
    shown = [
        it if it.default is it.empty or isinstance(it.default, plain) else it.replace(default=...)
        for it in signature.parameters.values()
    ]
    return str(signature.replace(parameters=shown))


def command_line() -> str:
    """Each command with its options."""
    return _text(_commands(cli, click.Context(cli, info_name="mcp-a2a")))


def _commands(one: click.Command, context: click.Context) -> Iterator[str]:
    words = [" ".join((*it.opts, *it.secondary_opts)) for it in one.params]
    yield " | ".join((context.command_path, *words))
    if isinstance(one, click.Group):
        for name in one.list_commands(context):
            inner = one.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, click.Context(inner, context, info_name=name))


def errors() -> str:
    """Each error with its parents and its exit code. The name of an error is the outcome of the hop that it ends."""
    for module in pkgutil.walk_packages(bridge.__path__, "bridge."):
        if module.name != "bridge.__main__":
            importlib.import_module(module.name)
    found, left = dict[str, str](), [BridgeError]
    while left:
        for kind in left.pop().__subclasses__():
            if kind.__module__.partition(".")[0] == "bridge":
                left.append(kind)
                parents = ", ".join(one.__name__ for one in kind.__bases__)
                exc = kind.__new__(kind)
                found[kind.__name__] = f"{kind.__name__}({parents}): {fault_policy_of(exc).exit_code}"
    return _text(found[name] for name in sorted(found))


# Tables and derived keys


def tables() -> str:
    """The hash of each step that makes a table, which never changes once it is released, and the names in PostgreSQL.
    The statements of SQLite are also in `store.sql`."""
    steps = [("sqlite", number, text, False) for number, text in enumerate(STEPS, 1)]
    for name, made in (("agent", AGENT), ("replicas", REPLICAS), ("logins", LOGINS)):
        steps += [
            (f"postgres {name}", number, step.statements, step.is_breaking)
            for number, step in enumerate(made.steps, 1)
        ]
    places = [Namespace.of(name) for name in ("desk", "My-Desk")]
    return _text(
        [
            f"sqlite application id {APPLICATION_ID:#x}",
            *(
                f"{name} {number}{' breaking' if breaks else ''} {hashlib.sha256(text.encode()).hexdigest()}"
                for name, number, text, breaks in steps
            ),
            *(
                f"postgres schema {one.name} lock {one.lock}"
                for one in (*places, Namespace.of_replicas(), Namespace.of_logins())
            ),
        ]
    )


def derived() -> str:
    """What follows from a key of the bridge and from names: what replicas and receivers compare."""
    proofs, signer = Proofs([KEY]), PushSigner("https://bridge.example", (KEY,), {"hooks.example:443": KEY})
    with_names = {"far": {"url": "https://tools.example/mcp"}}
    agents = {"helper": {"card": "https://agents.example"}}
    file = {
        "bridge": {"store": "memory:"},
        "tool_servers": with_names,
        "agents": agents,
        "tools_as_agent": {"desk": {"from": ["far"]}},
        "agents_as_tools": {"face": {"from": ["helper"]}},
    }
    digested = plan_bytes(plan_from_file(bridge.loads(file, {}))).decode()
    names = sorted(set(re.findall(r'\["([A-Z]\w+)", ', digested)))
    return _text(
        [
            *(f"proof {one.name} {proofs.proof(one, b'said', b'twice').hex()}" for one in ProofPurpose),
            *(f"push key {json.dumps(one)}" for one in signer.public_keys()),
            f"push signature {signer.signatures('hook', 1_800_000_000, b'{}', 'hooks.example:443')}",
            f"agent mark {agent_mark('helper')}",
            f"request digest {request_digest('tool', {'b': 1, 'a': [True, None, 'ü']}).hex()}",
            f"plan digest names {' '.join(names)}",
        ]
    )


# Metrics, log lines and audit lines


def hop(**said: Any) -> Hop:
    """A hop of a face that has ended, with a value in each field."""
    made = Hop("server", "a2a", (), TraceContext(PARENT), "SendMessage", "desk", "far", "echo", "ann")
    for name, value in ({"state": "completed", "task_id": "t-1", "context_id": "c-1"} | said).items():
        setattr(made, name, value)
    made.seconds = 0.3
    return made


NOTICES: Final = (
    TokenNotice("far", "token_exchange", "given", 0.3, "ann"),
    LoginNotice("far", "begun", "ann"),
    LoginNotice("far", "refused"),
    LoginTaken("far", NOW),
    WebhookAsked("desk", "ann", "t-1", "hooks.example:443"),
    AnswerTaken("face", "ann", "echo", "far", PARENT[3:35], 7),
    PushAttempt("desk", "delivered", "t-1", "hooks.example:443"),
    PushAttempt("desk", "given_up", "t-1", "hooks.example:443"),
    PushReceived("far", "taken", 204),
    PushReceived("", "refused", 404),
)


async def metrics() -> str:
    """Each family of metrics: its name, its type, its labels, and the bounds of its buckets. A family without a sample
    in an idle bridge has no labels here."""
    counted = HopMetrics(lambda: KnownNames({"desk": frozenset({"echo"})}, frozenset({"far"})))
    for side in ("server", "client"):
        for protocol in ("a2a", "mcp"):
            one = hop(side=side, protocol=protocol)
            counted.ended(one)
            counted.waited(one, "far", 0.1)
    for notice in NOTICES:
        counted.noticed(notice)
    told = [*families_of(counted.read()), *counted.counters(), *ReloadCount().families()]
    with tempfile.TemporaryDirectory() as folder:
        file = {
            "bridge": {"store": "memory:"},
            "agents": {"far": {"card": "http://127.0.0.1:9"}},
            "tools_as_agent": {"desk": {"from": ["demo"]}},
            "agents_as_tools": {"face": {"from": ["far"]}},
        }
        plan = plan_from_file(bridge.loads(file, {}, servers={"demo": desk()}))
        place = replace(
            plan.place,
            state=Path(folder, "state"),
            cache=Path(folder, "cache"),
            metrics=("127.0.0.1", 0),
            audit=AuditPlan(Path(folder, "audit.jsonl"), 1 << 30, 10),
            push=PushPlan(),
        )
        plan = replace(plan, place=place)
        idle = Bridge(plan)
        async with idle.run(), listening(idle.app):
            await idle.apply(plan)
            told += await idle.telemetry.families()
            idle.offered[0].server.stop()
    return _text(sorted({family.name: _family(family) for family in reversed(told)}.values()))


def _family(family: MetricFamily) -> str:
    labels = dict.fromkeys(label for sample in family.samples for label, _ in sample.labels)
    bounds = dict.fromkeys(value for one in family.samples for label, value in one.labels if label == "le")
    return " ".join((family.kind, family.name, *labels, *(f"<={one}" for one in bounds)))


async def log_lines() -> str:
    """The line of a call, and the line of an operator's answer, as JSON without the time."""
    lines: list[dict[str, Any]] = []

    class Reader(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormat().format(record)))

    logger, reader, log = logging.getLogger("bridge"), Reader(), CallLog()
    level = logger.level
    logger.addHandler(reader)
    logger.setLevel(logging.INFO)
    try:
        for one in (hop(), hop(owner="bob"), hop(state="", error="METHOD_NOT_FOUND", skill="")):
            log.ended(one)
        log.write()
    finally:
        logger.removeHandler(reader)
        logger.setLevel(level)
    return _text(json.dumps({key: one for key, one in line.items() if key != "time"}) for line in lines)


class Entries:
    """A journal that keeps entries in memory."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []

    def note(self, entry: dict[str, Any]) -> None:
        """Keep an entry."""
        self.made.append(entry | {"time": "2027-01-15T08:00:00.000Z"})

    async def commit(self, entry: dict[str, Any]) -> int:
        """Keep an entry, and give its number."""
        self.note(entry)
        return len(self.made)


async def audit() -> str:
    """A chain of audit lines, at least one of each kind that a recorder makes. `tests/audit/test_lines.py` has those
    of a bridge that starts, reloads and stops."""
    entries = Entries()
    recorder = AuditRecorder(entries, lambda name: name, 100)  # type: ignore[arg-type]  # all that it asks for
    recorder.plan = "of-the-plan"
    await recorder.begin(replica="r", pid=1, version="0")
    recorder.began(hop(is_authenticated=True))
    await recorder.intend(hop())
    for method in (
        "SendMessage",
        "CancelTask",
        "CreateTaskPushNotificationConfig",
        "DeleteTaskPushNotificationConfig",
    ):
        recorder.ended(hop(method=method, intent=3, target="hooks.example:443"))
    for method in ("tools/call", "tasks/update", "tasks/cancel", "elicitation/create", "resources/read"):
        recorder.ended(hop(method=method, protocol="mcp"))
    for said in (
        {"side": "client"},
        {"is_answer": True, "owner": "bob"},
        {"error": "TASK_NOT_FOUND", "peer": "", "state": ""},
        {"error": "UNAUTHENTICATED", "principal": "", "peer": "", "state": ""},
        {"method": "GetTask", "owner": "bob"},
        {"method": "tools/call", "skill": "task_reply"},
        {"method": "tools/call", "skill": "task_cancel"},
    ):
        recorder.ended(hop(**said))
    for notice in NOTICES:
        recorder.noticed(notice)
    lines, head = [], ChainHead()
    for entry in entries.made:
        line, head = sealed(entry, head)
        lines.append(line.decode())
    return _text(lines)


# What an earlier release has sealed


@dataclass(frozen=True)
class Sealed:
    """A value that is sealed by one release, and opened by a later one."""

    value: Any
    seal: Callable[[Any], str]
    open: Callable[[str], Any]


def things() -> Mapping[str, Sealed]:
    """Everything that is sealed with a key of the bridge, by its name."""
    seal, pages, console = Seal([KEY]), LoginSeals([KEY]), SessionSeal([KEY])
    webhooks, commands, callers = WebhookRecords([KEY]), CommandSeals([KEY], "desk"), OwnCallers(KEY.decode())
    proof = BegunProof(
        "https://bridge.example/back", "state", "nonce", "verifier", True, "https://a", "https://i"
    )
    link = LoginLink("tool_servers.crm", "corp:ann", "desk", LATER, "https://login.example")
    login = Login(
        "https://login.example", "https://login.example/token", "client", "access", NOW, NOW - 1, "secret", "basic",
        "refresh", LATER, ("a", "b"), ("c",), "https://tools.example", True, NOW, "lost", "https://login.example/r",
        NOW, NOW, "https://login.example",
    )  # fmt: skip
    begun = BegunLogin(
        "https://login.example/page", "https://b/back", "state", "verifier", True, login, "https://i"
    )
    awaited = AwaitedLogin("corp:ann", "call", ("a*",), (("read", ("b*", "c")),), NOW, LATER, "v", NOW, True)
    session = ConsoleSession("csrf", LATER, LATER, "secret", Scheme.API_KEY, True)
    hook = TaskPushNotificationConfig.model_validate(
        {"id": "w", "taskId": "t", "url": "https://h/", "token": "x"}
    )
    place, key = CommandPlace(ID, 7), WebhookKey("t", "w")
    caller = Caller("corp:ann", CallerToken("https://login.example", "ann", "token", LATER))

    def open_command(text: str) -> str:
        data, _, said = text.partition(" ")
        return commands.opened(place, _bytes(data), _bytes(said)).decode()

    def handle(purpose: HandlePurpose) -> Sealed:
        ids, binding = (str(ID), ID.hex, PARENT, "an id: ü"), HandleBinding(purpose, "corp:ann", b"d" * 32)
        return Sealed(
            Handle(agent_mark("helper"), ids, int(LATER)),
            lambda value: seal.seal(value, binding),
            lambda text: seal.open(text, binding, NOW),
        )

    return {f"handle {one.value}": handle(one) for one in HandlePurpose} | {
        "login in a file": Sealed(login, _login_file, _login_in_file),
        "login link": Sealed(link, pages.sealed, lambda text: pages.link(text, NOW)),
        "cookie of a person": Sealed(
            BrowserPerson("link", "csrf", LATER, "ann"), pages.sealed, lambda text: pages.person(text, NOW)
        ),
        "cookie of a proof": Sealed(
            PendingProof("link", proof, LATER), pages.sealed, lambda text: pages.proof(text, NOW)
        ),
        "cookie of a login": Sealed(
            PendingLogin(link, begun, NOW, LATER, "https://crm/"),
            pages.sealed,
            lambda text: pages.pending(text, NOW),
        ),
        "awaited login": Sealed(awaited, pages.sealed, pages.awaited),
        "cookie of the console": Sealed(session, console.sealed, lambda text: console.opened(text, LATER)),
        "cookie of a sign-in": Sealed(
            BegunSignIn("corp", proof, LATER),
            console.sealed_begun,
            lambda text: console.opened_begun(text, NOW),
        ),
        "webhook": Sealed(
            SealedWebhook(hook, "mark", frozenset({"urn:x"}), True),
            lambda value: _base64(webhooks.sealed(key, value)),
            lambda text: webhooks.opened(Webhook(key, "ann", 1, _bytes(text))),
        ),
        "command of a replica": Sealed(
            '{"kind":"cancel"}',
            lambda value: " ".join(map(_base64, commands.sealed(place, value.encode()))),
            open_command,
        ),
        "caller of the bridge itself": Sealed(
            caller.principal,
            lambda _: next(iter(callers.headers(caller).values())),
            lambda text: callers.principal_in(text).name,
        ),
    }


_LOGIN_KEY: Final = LoginKey("https://tools.example/mcp", "corp:ann")


def _login_file(login: Login) -> str:
    records = LoginRecords([KEY])
    name = f"{login_id(_LOGIN_KEY)}-{records.key_ids[0]}"
    return f"logins/{name}.login {_base64(records.sealed(name, _LOGIN_KEY, login))}"


def _login_in_file(text: str) -> Login | None:
    """The login that a bridge finds in a folder with this file."""
    name, _, data = text.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(mode=0o700)
        path.write_bytes(_bytes(data))
        path.chmod(0o600)
        return LoginFiles(Path(folder), (KEY.decode(),))._read(_LOGIN_KEY)


def _shown(value: Any) -> Any:
    """A value as JSON, without the names of types."""
    if isinstance(value, SealedWebhook):
        value = asdict(value) | {"config": value.config.to_object()}
    return json.loads(json.dumps(value if isinstance(value, str | dict) else asdict(value), default=sorted))


def sealed_things() -> str:
    """Everything sealed now, and what it opens to."""
    return json.dumps(
        {name: {"sealed": one.seal(one.value), "opens to": _shown(one.value)} for name, one in things().items()},
        indent=1,
    ) + "\n"  # fmt: skip


# What an earlier release has stored


def desk() -> MCPServer:
    """A tool server with a tool that needs two arguments."""
    server = MCPServer("demo", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    return server


PATIENT: Final = """
extends = "default"
run.input_timeout_seconds = 3e9
store.keep_ended_seconds = 3e9
requests.repeat_seconds = 3e9
"""
"""A profile by which a task of an earlier release never ends for its age."""


@asynccontextmanager
async def asked(store: Path) -> AsyncIterator[Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]]:
    """A bridge with a store in a file, to be asked in A2A."""
    profile = store.with_name("patient.toml")
    profile.write_text(PATIENT)
    file = {
        "bridge": {"store": str(store), "keys": [{"env": "KEY"}], "mapping": str(profile)},
        "tools_as_agent": {"desk": {"from": ["demo"], "mapping": str(profile)}},
    }
    loaded = bridge.loads(file, {"KEY": KEY.decode()}, servers={"demo": desk()})
    async with (
        bridge.open(loaded) as app,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), headers={"A2A-Version": "1.0"}) as client,
    ):

        async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = (await client.post("http://localhost/agents/desk", json=body)).json()
            assert "result" in answer, answer
            result: dict[str, Any] = answer["result"]
            return result

        yield ask


def _message(number: int, data: dict[str, Any], **more: str) -> dict[str, Any]:
    parts = [{"data": data, "mediaType": "application/json"}]
    return {"message": {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": parts, **more}}


async def store() -> str:
    """The statements of a store with a task that has ended and a task that waits for an argument."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tasks.db")
        async with asked(path) as ask:
            await ask("SendMessage", _message(1, {"a": 1, "b": 2}))
            await ask("SendMessage", _message(2, {"a": 1}))
        (made,) = [
            one for one in Path(folder).rglob("*") if one.is_file() and one.read_bytes()[:6] == b"SQLite"
        ]
        with closing(sqlite3.connect(made)) as connection:
            marks = [
                f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
                for name in ("application_id", "user_version")
            ]
            return _text([f"-- {made.relative_to(folder).as_posix()}", *marks, *connection.iterdump()])


def _text(lines: Any) -> str:
    return "".join(f"{line}\n" for line in lines)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text)


# The tests, and the command

TEXTS: Final[Mapping[str, Callable[[], str | Awaitable[str]]]] = {
    "library.txt": library,
    "command-line.txt": command_line,
    "errors.txt": errors,
    "tables.txt": tables,
    "derived.txt": derived,
    "metrics.txt": metrics,
    "log-lines.txt": log_lines,
    "audit.jsonl": audit,
}
OPENED: Final[Mapping[str, Callable[[], str | Awaitable[str]]]] = {
    "sealed.json": sealed_things,
    "store.sql": store,
}


async def made_now(name: str) -> str:
    """A snapshot as this code makes it."""
    made = (TEXTS | OPENED)[name]()  # type: ignore[operator]  # both are plain dicts
    return made if isinstance(made, str) else await made


def kept(name: str) -> str:
    """A snapshot as it is committed."""
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TEXTS)
async def test_a_text_is_as_it_was(name: str) -> None:
    made = await made_now(name)
    assert made.splitlines() == kept(name).splitlines(), f"if this is wanted: {AGAIN} {name}"


def test_every_file_is_a_snapshot() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TEXTS, *OPENED}


def test_the_audit_that_was_written_is_whole() -> None:
    assert verified([FOLDER / "audit.jsonl"]).faults == []


@pytest.mark.parametrize("name", things())
def test_what_was_sealed_opens(name: str) -> None:
    was, now = json.loads(kept("sealed.json"))[name], things()[name]
    assert _shown(now.open(was["sealed"])) == was["opens to"]
    assert _shown(now.open(now.seal(now.value))) == _shown(now.value)


def tables_in(path: Path) -> list[tuple[str, str, str]]:
    """The tables, indices and triggers of a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()


async def test_tasks_that_were_stored_are_found_and_go_on(tmp_path: Path) -> None:
    path = tmp_path / kept("store.sql").partition("\n")[0].removeprefix("-- ")
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(kept("store.sql"))
    for file in (path, tmp_path / "new.db"):
        async with SQLiteStore(file):
            pass
    assert tables_in(path) == tables_in(tmp_path / "new.db")
    async with asked(tmp_path / "tasks.db") as ask:
        waiting, ended = (await ask("ListTasks", {"includeArtifacts": True}))["tasks"]
        assert (waiting["status"]["state"], ended["status"]["state"]) == (
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_COMPLETED",
        )
        assert ended["artifacts"][0]["parts"][0]["text"] == "3"
        assert (await ask("SendMessage", _message(1, {"a": 1, "b": 2})))["task"]["id"] == ended["id"]
        went_on = (await ask("SendMessage", _message(3, {"b": 5}, taskId=waiting["id"])))["task"]
        assert went_on["artifacts"][0]["parts"][0]["text"] == "6"


def main() -> None:
    """Write the snapshots that are named; all texts if none is."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder}
        for name in sys.argv[1:] or TEXTS:
            FOLDER.joinpath(name).write_text(anyio.run(made_now, name), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
