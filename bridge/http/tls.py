"""TLS of the HTTP server (certificate, key, client certificates), and TLS with peers that the bridge calls.

Before each handshake the files are checked, and read again if one of them has changed. Open connections keep their
certificate. If the new files do not fit together, the last good ones stay in use, and one log line says why. This also
happens when a client connects between the two writes of a renewal.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from bridge.errors import UsageError
from bridge.local.file_stamps import FileStamp, file_stamp
from bridge.local.private_files import PEM_BYTES, may_others_use, read_regular, read_secret

logger = logging.getLogger(__name__)

ClientCertificates = Literal["required", "optional"]

SUBJECT: Final = "subject:"

_NAMES: Final = {"DNSName": "dns:", "UniformResourceIdentifier": "uri:", "RFC822Name": "email:"}
"""The alternative names that identify a client, and the prefixes of their identities."""

IDENTITY_KINDS: Final = (SUBJECT, *_NAMES.values())

_ENCRYPTED: Final = "it is encrypted, and the bridge cannot ask for a passphrase"


@dataclass(frozen=True)
class TlsFiles:
    """The PEM files for the TLS of a server."""

    certificate: Path
    """The certificate of the server, followed by its chain."""
    key: Path
    client_ca: Path | None = None
    """The authorities for client certificates; None requests no client certificates."""
    client_certificate: ClientCertificates = "required"
    """Whether a client without a certificate may connect if there is a `client_ca`."""

    @property
    def all(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(file for file in (self.certificate, self.key, self.client_ca) if file is not None)


class _FollowedContext:
    """A TLS context made from files, and made again when one of them has changed.

    Unusable files are tried again at each call, because the reason may pass without a change of the files, such as a
    lack of descriptors. Each reason is logged once.
    """

    def __init__(self, files: Sequence[Path], make: Callable[[], ssl.SSLContext], refusal: str) -> None:
        """`make` may raise UsageError. `refusal` begins the log line about unusable files; the reason follows it."""
        self._files = files
        self._make = make
        self._refusal = refusal
        self._used: tuple[FileStamp, ...] = ()
        """The stamps of the files that the context was made from."""
        self._context: ssl.SSLContext | None = None
        self._logged: object = None

    def now(self) -> tuple[ssl.SSLContext, bool]:
        """The context of the current files, or the last good context; and whether it is new.

        Raises:
            UsageError: a file cannot be used, and there is no earlier context.
        """
        stamps, before = tuple(map(file_stamp, self._files)), self._context
        if before is not None and stamps == self._used:
            return before, False
        try:
            self._context = self._make()
        except UsageError as exc:
            if before is None:
                raise
            if self._logged != (logged := (stamps, str(exc))):
                self._logged = logged
                logger.warning("%s: %s", self._refusal, exc)
            return before, False
        self._used, self._logged = stamps, None
        return self._context, True


class TlsPoint:
    """The TLS of a server. It follows changes of the files."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            UsageError: a file cannot be used.
        """
        self._files = files
        refusal = "the new certificate is refused, and the previous one stays in use"
        self._followed = _FollowedContext(files.all, lambda: server_context(files), refusal)
        self._followed.now()

    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        context, is_new = self._followed.now()
        if is_new:
            logger.info("the certificate in %s was read again", self._files.certificate)
        return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """The TLS context of a server: TLS 1.2 and later, HTTP/1.1.

    Raises:
        UsageError: a file cannot be read or has the wrong content, or the key does not match the certificate.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_own(context, files.certificate, files.key)
    if files.client_ca is not None:
        load_authorities(context, files.client_ca)
        is_required = files.client_certificate == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        context.sslobject_class = ShownCertificate
    return context


@dataclass(frozen=True)
class PeerTls:
    """The PEM files for TLS with a peer: our client certificate, and the authorities for the peer's certificate."""

    certificate: Path | None = None
    """Our client certificate, followed by its chain."""
    key: Path | None = None
    ca: Path | None = None
    """The authorities that may issue the peer's certificate; None for the default ones."""

    @property
    def all(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(file for file in (self.certificate, self.key, self.ca) if file is not None)

    @cached_property
    def _followed(self) -> _FollowedContext:
        refusal = "changed files are refused, and the previous ones stay in use"
        return _FollowedContext(self.all, lambda: peer_context(self), refusal)

    def context(self) -> ssl.SSLContext:
        """The context for the next handshake, from the current files or the last good ones.

        Raises:
            UsageError: a file cannot be used, and there is no earlier context.
        """
        return self._followed.now()[0]


def peer_context(files: PeerTls) -> ssl.SSLContext:
    """The TLS context of a client for a peer: TLS 1.2 and later.

    Raises:
        UsageError: a file cannot be read or has the wrong content, or the key does not match the certificate.
    """
    if files.ca is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_authorities(context, files.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if files.certificate is not None and files.key is not None:
        load_own(context, files.certificate, files.key)
    return context


def peer_faults_of(files: PeerTls, now: datetime) -> Iterator[tuple[str, str]]:
    """The faulty keys of a peer's table, each with its fault."""
    try:
        peer_context(files)
    except UsageError as exc:
        yield "certificate" if files.certificate else "ca", str(exc)
    else:
        if files.certificate is not None:
            yield from _faults_of_time(files.certificate, now)
    if files.key is not None:
        yield from _faults_of_rights(files.key)


def faults_of(files: TlsFiles, now: datetime) -> Iterator[tuple[str, str]]:
    """The faulty keys of the server's table, each with its fault. The server still serves an expired certificate, and
    leaves the refusal to clients."""
    try:
        server_context(files)
    except UsageError as exc:
        yield "certificate", str(exc)
    else:
        yield from _faults_of_time(files.certificate, now)
    yield from _faults_of_rights(files.key)


def _faults_of_rights(key: Path) -> Iterator[tuple[str, str]]:
    with suppress(OSError):  # the fault of the certificate reports an unreadable key
        if may_others_use(key.stat()):
            yield "key", f"other users of this machine can read {key}: chmod it to 600"


def _faults_of_time(file: Path, now: datetime) -> Iterator[tuple[str, str]]:
    from cryptography import x509  # slow to import, and most runs do not need it

    certificate = x509.load_pem_x509_certificate(read_regular(file, PEM_BYTES))
    if now > (end := certificate.not_valid_after_utc):
        yield "certificate", f"the certificate in {file} expired on {end:%Y-%m-%d}"
    if now < (begin := certificate.not_valid_before_utc):
        yield "certificate", f"the certificate in {file} is not valid before {begin:%Y-%m-%d}"


def certificate_end(file: Path) -> datetime | None:
    """When the certificate in a file expires; None if it cannot be read."""
    from cryptography import x509  # slow to import, and most runs do not need it

    try:
        return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


class UnreadableCertificateError(ssl.SSLError):
    """The certificate of a client comes from its authority but cannot be read."""


class ShownCertificate(ssl.SSLObject):
    """The server's end of a connection whose client may send a certificate.

    A certificate with unreadable names ends the handshake: the readable names may not be all of them.
    """

    identities: tuple[str, ...] = ()
    """The identities of the client after the handshake; see `identities_in`."""

    def do_handshake(self) -> None:
        """Do the next step of the handshake.

        Raises:
            UnreadableCertificateError: the certificate cannot be read.
            ssl.SSLError: the handshake has failed, or needs more data.
        """
        super().do_handshake()
        try:
            self.getpeercert()  # the event loop calls this next, and a fault there would stop the whole server
            self.identities = identities_in(self.getpeercert(binary_form=True))
        except Exception as exc:
            raise UnreadableCertificateError(ssl.SSL_ERROR_SSL, f"unreadable certificate: {exc}") from exc


def identities_in(der: bytes | None) -> tuple[str, ...]:
    """The identities in a client certificate in DER: its subject in the format of RFC 4514, and its alternative names.
    Empty if the client sent no certificate.

    Raises:
        ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension: a part of the certificate is unreadable.
    """
    if der is None:
        return ()
    from cryptography import x509  # slow to import, and most bridges request no client certificates

    certificate = x509.load_der_x509_certificate(der)
    subject = certificate.subject.rfc4514_string()
    try:
        others = [*certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]
    except x509.ExtensionNotFound:
        others = []
    kinds = ((_NAMES.get(type(other).__name__), other.value) for other in others)
    return (
        *([f"{SUBJECT}{subject}"] if subject else []),
        *(f"{kind}{value}" for kind, value in kinds if kind is not None),
    )


def load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load our certificate into a context.

    Raises:
        UsageError: a file cannot be read or has the wrong content, or the key does not match the certificate.
    """
    _require_readable(certificate)
    _require_readable(key, read_secret)

    def no_passphrase() -> str:
        raise UsageError(f"the key in {key} cannot be used: {_ENCRYPTED}")

    try:
        context.load_cert_chain(certificate, key, password=no_passphrase)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"the key in {key} does not match the certificate in {certificate}") from exc
        raise UsageError(f"{certificate} and {key} hold no certificate and key in PEM") from exc
    except OSError as exc:  # removed since `_require_readable`
        raise UsageError(f"{certificate} or {key} cannot be read: {exc.strerror}") from exc


def load_authorities(context: ssl.SSLContext, file: Path) -> None:
    """Let a context trust the authorities in a file.

    Raises:
        UsageError: the file cannot be read, or holds no certificates.
    """
    _require_readable(file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as exc:
        raise UsageError(f"{file} holds no certificates in PEM") from exc
    except OSError as exc:  # removed since `_require_readable`
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from exc


def _require_readable(file: Path, read: Callable[[Path, int], object] = read_regular) -> None:
    """Read the file before OpenSSL does: OpenSSL would wait at a pipe, and read a device endlessly."""
    try:
        read(file, PEM_BYTES)
    except OSError as exc:
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from exc
