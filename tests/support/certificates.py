"""Certificates made for a test: by themselves, for one name."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


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
