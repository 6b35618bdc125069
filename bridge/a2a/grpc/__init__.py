"""gRPC, the third binding of A2A: imported only where the configuration asks for it, and needs the extra `grpc`."""

from bridge.errors import UsageError
from bridge.local.installation import adding_extra

try:
    import grpc  # noqa: F401 - the modules of this package import it
except ImportError as exc:
    raise UsageError(f"gRPC needs its packages: {adding_extra('grpc')}") from exc
