"""Certificates made for a test: by themselves, for one name, or by an authority."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtensionOID, NameOID

from bridge.http.tls import PeerTls, TlsFiles, TlsPoint


def served_as(name: str, folder: Path, trusting: ssl.SSLContext | None = None) -> ssl.SSLContext:
    """What serves TLS under a name; a context of clients that is given trusts it from then on."""
    key, called = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
    )
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(called).issuer_name(called).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    both = folder / "both.pem"
    both.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(both)
    if trusting is not None:
        trusting.load_verify_locations(cadata=made.decode())
    return context


@dataclass(frozen=True)
class Issued:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Makes certificates in a folder."""

    folder: Path
    name: str = "An authority"
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def file(self) -> Path:
        """Its own certificate."""
        file = self.folder / f"{self.name}.pem"
        if not file.exists():
            basic = x509.BasicConstraints(ca=True, path_length=0)
            made = _builder(self.name, self.name, self._key, 1).add_extension(basic, critical=True)
            file.write_bytes(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        return file

    def issues(
        self,
        name: str,
        *others: x509.GeneralName,
        as_file: str | None = None,
        days: int = 1,
        raw_names: bytes = b"",
    ) -> Issued:
        """A certificate for a subject, with alternative names, or with `raw_names` as DER in their place. One with
        negative `days` has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, self.name, key, days)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        if raw_names:
            raw = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, raw_names)
            builder = builder.add_extension(raw, critical=False)
        made = builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        files = Issued(*(self.folder / f"{as_file or name}.{kind}" for kind in ("pem", "key")))
        files.certificate.write_bytes(made)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        files.key.chmod(0o600)
        return files

    def trusted(self, shown: Issued | None = None) -> ssl.SSLContext:
        """What a client of its servers does a handshake with, showing a certificate."""
        context = ssl.create_default_context(cafile=self.file)
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context


def _builder(name: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    subject, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer))
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(by).public_key(key.public_key())
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now + timedelta(days=days))
    )


@dataclass
class Company:
    """An authority of its own, with the certificate of one client."""

    authority: Authority

    @classmethod
    def at(cls, folder: Path) -> Company:
        (place := folder / "company").mkdir()
        return cls(Authority(place, "company"))

    def serving(self, wants: str) -> TlsPoint:
        """How a peer of it is served."""
        issued = self.authority.issues("peer", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        return TlsPoint(TlsFiles(issued.certificate, issued.key, self.authority.file, wants))  # type: ignore[arg-type]

    @property
    def tls(self) -> PeerTls:
        """What a client of it shows and trusts."""
        issued = self.authority.issues("bridge")
        return PeerTls(issued.certificate, issued.key, self.authority.file)
