"""The calls of agents over gRPC in one process. gRPC is imported only when a card leads there."""

from __future__ import annotations

import importlib.util
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from bridge.a2a.client.agent_client import OpenGrpc
from bridge.a2a.client.transports import Transport, TransportOptions
from bridge.a2a.model.objects import AgentInterface
from bridge.a2a.wire.dialect import Dialect

if TYPE_CHECKING:
    from bridge.a2a.grpc.channels import GrpcChannels


class GrpcTransports:
    """Makes transports over gRPC, and closes their connections at the end."""

    def __init__(self) -> None:
        self._channels: GrpcChannels | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def transports(self) -> OpenGrpc | None:
        """Makes a transport; None if the packages for gRPC are not installed."""
        return self._transport if importlib.util.find_spec("grpc") is not None else None

    def _transport(
        self, interface: AgentInterface, dialect: Dialect, terms: TransportOptions, max_values: int
    ) -> Transport:
        # needs the extra `grpc`
        from bridge.a2a.grpc.channels import GrpcChannels
        from bridge.a2a.grpc.client import GrpcTransport

        if self._channels is None:
            self._channels = GrpcChannels()
            self._open.push_async_exit(self._channels)
        return GrpcTransport(self._channels, interface, dialect, terms, max_values)
