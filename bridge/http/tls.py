"""TLS of our HTTP server, its certificate, its key, and who may connect; and what peers are shown and known by.

The files are looked at before each handshake, and read again when one of them has changed. Open connections keep what
they began with. Files that do not fit together are refused: the last good ones go on, and one log line says why. That
is also what happens between the two writes of a renewal, if a client connects just then.
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
"""The alternative names that say who a client is, and what their identities begin with."""

IDENTITY_KINDS: Final = (SUBJECT, *_NAMES.values())

_ENCRYPTED: Final = "it is encrypted, and nobody is there to give a passphrase"


@dataclass(frozen=True)
class TlsFiles:
    """The files of a server's TLS, in PEM."""

    certificate: Path
    """The certificate of the server, and behind it those that lead to its authority."""
    key: Path
    client_ca: Path | None = None
    """The authorities of clients' certificates; None asks clients for none."""
    client_certificate: ClientCertificates = "required"
    """Whether a client without a certificate may connect, where there is a `client_ca`."""

    @property
    def all(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(file for file in (self.certificate, self.key, self.client_ca) if file is not None)


class _FollowedContext:
    """A context that is made of files, and made anew once one of them has changed.

    Files that cannot be used are tried again at each call: why may pass without a change of them, as a lack of
    descriptors does. Each reason is logged once.
    """

    def __init__(self, files: Sequence[Path], make: Callable[[], ssl.SSLContext], refusal: str) -> None:
        """`make` may raise UsageError. `refusal` is what the log says of changed files before the reason."""
        self._files = files
        self._make = make
        self._refusal = refusal
        self._used: tuple[FileStamp, ...] = ()
        """The files that the context was made of."""
        self._context: ssl.SSLContext | None = None
        self._told: object = None

    def now(self) -> tuple[ssl.SSLContext, bool]:
        """The context of the files as they are now, or the last good one; and whether it was made anew.

        Raises:
            UsageError: a file cannot be used, and none ever could.
        """
        stamps, before = tuple(map(file_stamp, self._files)), self._context
        if before is not None and stamps == self._used:
            return before, False
        try:
            self._context = self._make()
        except UsageError as exc:
            if before is None:
                raise
            if self._told != (told := (stamps, str(exc))):
                self._told = told
                logger.warning("%s: %s", self._refusal, exc)
            return before, False
        self._used, self._told = stamps, None
        return self._context, True


class TlsPoint:
    """The TLS of a server, which follows its files."""

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
        """What the next handshake uses."""
        context, is_new = self._followed.now()
        if is_new:
            logger.info("the certificate in %s was read again", self._files.certificate)
        return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """What a server does a handshake with: TLS 1.2 and later, HTTP/1.1.

    Raises:
        UsageError: a file cannot be read, or is not what it should be, or key and certificate do not fit.
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
    """The files of TLS with one peer, in PEM: what it is shown, and whose certificate it has to have."""

    certificate: Path | None = None
    """The certificate that it is shown, and behind it those that lead to its authority."""
    key: Path | None = None
    ca: Path | None = None
    """The authorities that its own certificate may come from; None for those that everyone trusts."""

    @property
    def all(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(file for file in (self.certificate, self.key, self.ca) if file is not None)

    @cached_property
    def _followed(self) -> _FollowedContext:
        refusal = "changed files are refused, and the last ones are used on"
        return _FollowedContext(self.all, lambda: peer_context(self), refusal)

    def context(self) -> ssl.SSLContext:
        """What the next handshake uses: the files as they are now, or the last good ones.

        Raises:
            UsageError: a file cannot be used, and none ever could.
        """
        return self._followed.now()[0]


def peer_context(files: PeerTls) -> ssl.SSLContext:
    """What a client does a handshake with a peer with: TLS 1.2 and later.

    Raises:
        UsageError: a file cannot be read, or is not what it should be, or key and certificate do not fit.
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
    """The keys of a peer's table that something is wrong with, and what."""
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
    """The keys of the table that something is wrong with, and what. An expired certificate
    is served all the same: it is for clients to refuse it."""
    try:
        server_context(files)
    except UsageError as exc:
        yield "certificate", str(exc)
    else:
        yield from _faults_of_time(files.certificate, now)
    yield from _faults_of_rights(files.key)


def _faults_of_rights(key: Path) -> Iterator[tuple[str, str]]:
    with suppress(OSError):  # which is said of the certificate
        if may_others_use(key.stat()):
            yield "key", f"other users of this machine can read {key}: chmod it to 600"


def _faults_of_time(file: Path, now: datetime) -> Iterator[tuple[str, str]]:
    from cryptography import x509  # as below

    certificate = x509.load_pem_x509_certificate(read_regular(file, PEM_BYTES))
    if now > (end := certificate.not_valid_after_utc):
        yield "certificate", f"the certificate in {file} expired on {end:%Y-%m-%d}"
    if now < (begin := certificate.not_valid_before_utc):
        yield "certificate", f"the certificate in {file} counts from {begin:%Y-%m-%d} on"


def certificate_end(file: Path) -> datetime | None:
    """When the certificate in a file ends; None where that cannot be read."""
    from cryptography import x509  # takes long to import, and is needed for this alone

    try:
        return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None


class UnreadableCertificateError(ssl.SSLError):
    """A client has shown a certificate of its authority that cannot be read."""


class ShownCertificate(ssl.SSLObject):
    """The server's end of a connection whose client may show a certificate.

    A certificate with names that cannot be read ends the handshake: what it says beside them may not be all of it.
    """

    identities: tuple[str, ...] = ()
    """Who the client is, once the handshake is done; see `identities_in`."""

    def do_handshake(self) -> None:
        """Do the next step.

        Raises:
            UnreadableCertificateError: the certificate cannot be read.
            ssl.SSLError: the handshake failed, or is not done yet.
        """
        super().do_handshake()
        try:
            self.getpeercert()  # as the event loop reads it next, where a fault is one of the whole server
            self.identities = identities_in(self.getpeercert(binary_form=True))
        except Exception as exc:
            raise UnreadableCertificateError(ssl.SSL_ERROR_SSL, f"unreadable certificate: {exc}") from exc


def identities_in(shown: bytes | None) -> tuple[str, ...]:
    """The identities in the certificate that a client has shown, as DER: its subject as RFC 4514 writes it, and its
    alternative names. Empty if it has shown none, or none was asked for.

    Raises:
        ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension: it cannot be read, or not all of it.
    """
    if shown is None:
        return ()
    from cryptography import x509  # takes long to import, and most bridges ask for no certificates

    certificate = x509.load_der_x509_certificate(shown)
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
    """Let a context show a certificate.

    Raises:
        UsageError: a file cannot be read, or is not what it should be, or key and certificate do not fit.
    """
    _require_readable(certificate)
    _require_readable(key, read_secret)

    def no_passphrase() -> str:
        raise UsageError(f"the key in {key} cannot be used: {_ENCRYPTED}")

    try:
        context.load_cert_chain(certificate, key, password=no_passphrase)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"the key in {key} is not that of the certificate in {certificate}") from exc
        raise UsageError(f"{certificate} and {key} hold no certificate and key in PEM") from exc
    except OSError as exc:  # gone since
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
    except OSError as exc:  # gone since
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from exc


def _require_readable(file: Path, read: Callable[[Path, int], object] = read_regular) -> None:
    """Read the file before OpenSSL does, which would wait at a pipe, and read a device without end."""
    try:
        read(file, PEM_BYTES)
    except OSError as exc:
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from exc
