"""The certificate of the gRPC server, from the same files as that of the HTTP server, and read again when one changes.

gRPC asks for the files before each handshake. Files that do not fit together are refused, and the last good ones stay
in use. The server of gRPC can require a certificate of clients but not leave it to them, so it requests none where they
are optional.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from bridge.errors import UsageError
from bridge.http.tls import TlsFiles, server_context
from bridge.local.file_stamps import FileStamp, file_stamp

logger = logging.getLogger(__name__)


class _FollowedFiles:
    """The files of TLS as gRPC takes them. gRPC calls `changed` on threads of its own."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._used: tuple[FileStamp, ...] = ()
        self._refused: object = None

    @property
    def asks_clients(self) -> bool:
        """Whether clients need a certificate."""
        return self._files.client_ca is not None and self._files.client_certificate == "required"

    def read(self) -> Any:
        """The current files.

        Raises:
            UsageError: a file cannot be used.
        """
        files, stamps = self._files, tuple(map(file_stamp, self._files.all))
        server_context(files)
        try:
            pair = files.key.read_bytes(), files.certificate.read_bytes()
            authorities = (
                files.client_ca.read_bytes() if files.client_ca is not None and self.asks_clients else None
            )
        except OSError as exc:  # removed since `server_context`
            raise UsageError(f"{exc.filename} cannot be read: {exc.strerror}") from exc
        self._used = stamps
        return grpc.ssl_server_certificate_configuration([pair], authorities)

    def changed(self) -> Any:
        """The files, if they have changed since they were read; else None."""
        stamps = tuple(map(file_stamp, self._files.all))
        if stamps == self._used:
            return None
        try:
            credentials = self.read()
        except UsageError as exc:
            if self._refused != stamps:
                self._refused = stamps
                logger.warning(
                    "the new certificate is refused, and the previous one stays in use for gRPC: %s", exc
                )
            return None
        logger.info("the certificate in %s was read again for gRPC", self._files.certificate)
        return credentials


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """The credentials of a server with these files.

    Raises:
        UsageError: a file cannot be used.
    """
    followed = _FollowedFiles(files)
    return grpc.dynamic_ssl_server_credentials(
        followed.read(), followed.changed, require_client_authentication=followed.asks_clients
    )
