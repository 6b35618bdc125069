"""TLS of our HTTP server: its certificate, its key, and who may connect.

The files are looked at before each handshake, and read again when one of them has changed. Open connections keep what
they began with. Files that do not fit together are refused: the last good ones go on, and one log line says why. That
is also what happens between the two writes of a renewal, if a client connects just then.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from bridge.errors import UsageError
from bridge.private_files import may_others_use

logger = logging.getLogger(__name__)

ClientCertificates = Literal["required", "optional"]

SUBJECT: Final = "subject:"

_NAMES: Final = {"DNSName": "dns:", "UniformResourceIdentifier": "uri:", "RFC822Name": "email:"}
"""The alternative names that say who a client is, and what their identities begin with."""

IDENTITY_KINDS: Final = (SUBJECT, *_NAMES.values())

_Stamp = tuple[int, int, int] | None
"""The time of the last change of a file, its size and its number; None for a missing file."""

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


class TlsPoint:
    """The TLS of a server, which follows its files."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            UsageError: a file cannot be used.
        """
        self._files = files
        self._seen = _stamps(files)
        self._context = server_context(files)

    def context(self) -> ssl.SSLContext:
        """What the next handshake uses."""
        now = _stamps(self._files)
        if now != self._seen:
            self._seen = now
            try:
                self._context = server_context(self._files)
            except UsageError as exc:
                logger.warning("the new certificate is refused, and the last one is shown on: %s", exc)
            else:
                logger.warning("the certificate in %s was read again", self._files.certificate)
        return self._context


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
    return context


def faults_of(files: TlsFiles, now: datetime) -> Iterator[tuple[str, str]]:
    """The keys of the table that something is wrong with, and what. An expired certificate
    is served all the same: it is for clients to refuse it."""
    try:
        server_context(files)
    except UsageError as exc:
        yield "certificate", str(exc)
    else:
        yield from _faults_of_time(files.certificate, now)
    with suppress(OSError):  # which the line above has said
        if may_others_use(files.key.stat()):
            yield "key", f"other users of this machine can read {files.key}: chmod it to 600"


def _faults_of_time(file: Path, now: datetime) -> Iterator[tuple[str, str]]:
    from cryptography import x509  # as below

    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    if now > (end := certificate.not_valid_after_utc):
        yield "certificate", f"the certificate in {file} expired on {end:%Y-%m-%d}"
    if now < (begin := certificate.not_valid_before_utc):
        yield "certificate", f"the certificate in {file} counts from {begin:%Y-%m-%d} on"


def identities_in(tls: ssl.SSLObject | None) -> tuple[str, ...]:
    """The identities in the certificate that a client has shown: its subject as RFC 4514 writes it, and its alternative
    names. Empty if it has shown none, or none was asked for."""
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    if shown is None:
        return ()
    from cryptography import x509  # takes long to import, and most bridges ask for no certificates

    certificate = x509.load_der_x509_certificate(shown)
    subject = certificate.subject.rfc4514_string()
    try:
        others = [*certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]
    except (ValueError, x509.ExtensionNotFound):  # a broken extension says nothing
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
    for file in (certificate, key):
        _require_readable(file)

    def no_passphrase() -> str:
        raise UsageError(f"the key in {key} cannot be used: {_ENCRYPTED}")

    try:
        context.load_cert_chain(certificate, key, password=no_passphrase)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"the key in {key} is not that of the certificate in {certificate}") from exc
        raise UsageError(f"{certificate} and {key} hold no certificate and key in PEM") from exc


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


def _require_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as exc:
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from exc


def _stamps(files: TlsFiles) -> tuple[_Stamp, ...]:
    return tuple(_stamp(file) for file in files.all)


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
