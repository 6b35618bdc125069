"""A machine on which a block of the guide runs: a free port of loopback, a certificate that is signed by itself, and a
client that knows the guide's names, in the place of what a public one has."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.abc
import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.proxies.guide import Case
from tests.support.command import WAIT_SECONDS
from tests.support.ports import free_port
from tests.support.reader import Reader


def configured(case: Case, port: int, folder: Path) -> list[str]:
    """Write a block's configuration for this machine; gives the command that runs it."""
    certificate, key = signed_by_itself(case.host, folder)
    if case.program == "nginx":
        text = case.block.text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        text = re.sub(r"(ssl_certificate) .*;", rf"\1 {certificate};", text)
        text = re.sub(r"(ssl_certificate_key) .*;", rf"\1 {key};", text)
        file = folder / "nginx.conf"
        file.write_text(_NGINX.format(folder=folder, server=text, user="user root;" * (os.geteuid() == 0)))
        return ["nginx", "-p", str(folder), "-c", str(file), "-e", "stderr"]
    here = f"{case.host}:{port} {{\n    bind 127.0.0.1\n    tls {certificate} {key}"
    file = folder / "Caddyfile"
    file.write_text(_CADDY + case.block.text.replace(f"{case.host} {{", here, 1))
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


_NGINX = """{user}
daemon off;
pid {folder}/nginx.pid;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/body;
proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{server}
}}
"""
_CADDY = "{\n    admin off\n    auto_https disable_redirects\n}\n\n"


def signed_by_itself(host: str, folder: Path) -> tuple[Path, Path]:
    """A certificate for a host, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "site.crt", folder / "site.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


@asynccontextmanager
async def proxied(case: Case, reader: Reader, folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A proxy that runs as a block says, and a client to which the block's host is this one."""
    port = free_port()
    command = configured(case, port, folder)
    for file in ("nginx.conf", "Caddyfile"):
        if (folder / file).exists():
            (folder / file).write_text(reader.with_ports((folder / file).read_text()))
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    log = (folder / "proxy.log").open("wb")
    async with await anyio.open_process(command, env=environment, stdout=log, stderr=log) as process:
        try:
            with anyio.fail_after(WAIT_SECONDS):
                await _listens(port, process)
            async with client_of(case, port, folder / "site.crt") as client:
                yield client
        finally:
            if process.returncode is None:
                process.terminate()
            log.close()


async def _listens(port: int, process: anyio.abc.Process) -> None:
    """Wait until somebody listens: no proxy tells when it does."""
    while process.returncode is None:
        try:
            async with await anyio.connect_tcp("127.0.0.1", port):
                return
        except OSError:
            await anyio.sleep(0.05)
    raise RuntimeError("the proxy ended; its log says why")


class Resolved(httpx2.AsyncHTTPTransport):
    """Reaches every host at one port of loopback, and asks for it by its own name."""

    def __init__(self, port: int, trusted: ssl.SSLContext) -> None:
        super().__init__(verify=trusted)
        self._port = port

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions["sni_hostname"] = request.url.host
        request.url = request.url.copy_with(host="127.0.0.1", port=self._port)
        return await super().handle_async_request(request)


def client_of(case: Case, port: int, certificate: Path) -> httpx2.AsyncClient:
    """A client that trusts the certificate alone, and has Alice's token."""
    transport = Resolved(port, ssl.create_default_context(cafile=certificate))
    headers = {"Authorization": "Bearer a-90d3"}
    return httpx2.AsyncClient(transport=transport, headers=headers, timeout=WAIT_SECONDS)
