"""What a profile says of requests and connections, as the HTTP server takes it."""

from __future__ import annotations

import ipaddress
import logging

from bridge.config.tables.profile import Profile
from bridge.connections import ConnectionLimits
from bridge.http_server import RequestLimits, ServerLimits

logger = logging.getLogger(__name__)


def server_limits(profile: Profile, descriptors: int) -> ServerLimits:
    """The limits of a profile, as far as there are descriptors for its connections."""
    requests, connections = profile.requests, profile.connections
    wanted = ConnectionLimits(
        most=connections.most,
        new=connections.new,
        each=connections.each,
        proxies=tuple(ipaddress.ip_network(one, strict=False) for one in connections.proxies),
        idle_seconds=connections.idle_seconds,
        head_seconds=requests.head_seconds,
        body_seconds=requests.body_seconds,
        bodies_bytes=requests.bodies_limit_bytes,
    )
    fitting = wanted.within(descriptors)
    if fitting != wanted:
        logger.info("%d descriptors are enough for %d connections", descriptors, fitting.most)
    return ServerLimits(
        RequestLimits(
            head_bytes=requests.head_limit_bytes,
            headers=requests.headers,
            target_bytes=requests.target_limit_bytes,
            bytes_per_second=requests.bytes_per_second,
            pipelined=requests.pipelined,
        ),
        fitting,
    )
