"""Finds what the process itself lacks: packages, certificates, keys, and addresses that issuers have to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module

from bridge.a2a.model.objects import GRPC
from bridge.assembly.card_signing import card_key_faults
from bridge.assembly.other_replicas import require_driver
from bridge.assembly.plan import CONSOLE, LOOPBACK_HOST, STANDARD_OUTPUT, Plan
from bridge.assembly.stores import logins_of
from bridge.console.issuer_sign_in import BACK_PATH as CONSOLE_BACK
from bridge.errors import UsageError
from bridge.http.tls import faults_of, peer_faults_of
from bridge.identity.logins.login_landing import LoginLanding
from bridge.identity.pages.login_links import BACK_PATH as LOGIN_BACK
from bridge.identity.pages.login_links import WHO_PATH
from bridge.local.private_files import require_writable
from bridge.process.serve import url_of
from bridge.seal import MIN_KEY_BYTES


@dataclass(frozen=True)
class FindingFault:
    """A fault: something does not work, and the key of the file that it is about."""

    path: tuple[str | int, ...]
    words: str
    is_package: bool = False
    """Whether a Python package is missing."""

    @classmethod
    def at(cls, path: tuple[str | int, ...], words: str) -> FindingFault:
        """A fault of a key in a table, or of the table itself."""
        table, name, *key = path
        return cls(path, ": ".join(filter(None, [f"{table}.{name}", ".".join(map(str, key)), words])))

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class RedirectUri:
    """An address to which an issuer sends browsers back. It must be registered at the issuer."""

    client: str
    """The table of the file that names the bridge as a client there."""
    uri: str
    what_for: str


def tls_faults(plan: Plan) -> Iterator[FindingFault]:
    """Yield faults of the certificate that the bridge shows, and of its key."""
    if plan.place.tls is not None:
        for key, words in faults_of(plan.place.tls, datetime.now(UTC)):
            yield FindingFault(("bridge", "tls", key), f"bridge.tls.{key}: {words}")


def place_faults(plan: Plan) -> Iterator[FindingFault]:
    """Yield faults of the packages, files and keys that the process itself needs."""
    yield from _package_faults(plan)
    yield from _binding_faults(plan)
    yield from _audit_faults(plan)
    yield from tls_faults(plan)
    for path, tls in plan.tls_of_peers():
        for name, words in peer_faults_of(tls, datetime.now(UTC)):
            yield FindingFault.at((*path, "tls", name), words)
    for number, key in enumerate(plan.place.keys):
        if isinstance(key, str) and len(key.encode()) < MIN_KEY_BYTES:
            words = f"the key has fewer than {MIN_KEY_BYTES} bytes, so it can be guessed; `serve` refuses it"
            yield FindingFault(("bridge", "keys", number, "env"), f"bridge.keys: {words}")
    if any(remote.signed_by for remote in plan.agents.values()):
        from bridge.assembly.card_pins import pin_faults  # loads PyJWT, for few files

        for name, words in pin_faults(plan):
            yield FindingFault.at(("agents", name, "signed_by", "file"), words)
    for number, words in card_key_faults(plan):
        yield FindingFault(("bridge", "card_keys", number), f"bridge.card_keys: {words}; `serve` refuses it")


def _audit_faults(plan: Plan) -> Iterator[FindingFault]:
    audit = plan.place.audit
    if audit is None or audit.file == STANDARD_OUTPUT:
        return
    try:
        require_writable(audit.file)
    except OSError as exc:
        yield FindingFault(("audit", "file"), f"audit.file: {audit.file} cannot be written: {exc}")


def _package_faults(plan: Plan) -> Iterator[FindingFault]:
    place = plan.place
    takers = (
        ("store", place.shared_store is not None, require_driver),
        ("console", place.console, partial(import_module, "bridge.console.app")),
        ("grpc", bool(place.grpc_addresses), partial(import_module, "bridge.a2a.grpc.server")),
        ("traces", place.traces is not None, partial(import_module, "bridge.telemetry.spans")),
    )
    for key, is_taken, load in takers:
        try:
            if is_taken:
                load()
        except UsageError as exc:
            yield FindingFault(("bridge", key), f"bridge.{key}: {exc}", is_package=True)


def _binding_faults(plan: Plan) -> Iterator[FindingFault]:
    for name, remote in plan.agents.items():
        try:
            if GRPC in remote.bindings:
                import_module("bridge.a2a.grpc")
        except UsageError as exc:
            path = ("agents", name, "bindings")
            yield FindingFault(path, f"agents.{name}.bindings: {exc}", is_package=True)


def redirect_uris(plan: Plan) -> Iterator[RedirectUri]:
    """Yield the redirect URIs that the user has to register at issuers by hand."""
    place, login_configs = plan.place, tuple(logins_of(plan))
    root = place.public_url or url_of(place.host, place.port)
    for login_config in login_configs:
        if login_config.client_id and login_config.of_each:
            yield RedirectUri(login_config.table, f"{root}{LOGIN_BACK}", "the logins of callers")
        elif login_config.client_id:
            uri = LoginLanding(LOOPBACK_HOST, 0).redirect_uri.replace(":0/", ":PORT/")
            yield RedirectUri(
                login_config.table,
                uri,
                f"`mcp-a2a login {login_config.name} --port PORT`, with a port of your choice",
            )
    for name, issuer in plan.issuers.items():
        if issuer.login and any(login_config.of_each for login_config in login_configs):
            yield RedirectUri(f"issuers.{name}", f"{root}{WHO_PATH}", "callers who show who they are")
        if issuer.login and place.console:
            yield RedirectUri(f"issuers.{name}", f"{root}{CONSOLE}{CONSOLE_BACK}", "the console")
