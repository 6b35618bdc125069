"""A plan as bytes: two plans with the same bytes show their clients the same. Pure.

What differs between replicas of one file by right is left out: where a replica listens, keeps its files, its
certificate and its audit, and reaches the database, what it logs and measures, and the order of keys while they are
changed. Everything else counts, secrets included, so the bytes themselves are never published: see `ProofPurpose.PLAN`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from bridge.assembly.plan import Plan, ProcessPlan
from bridge.config.text.secrets import Secret
from bridge.identity.tokens.oauth import TokenSource
from bridge.mcp.client.transports.in_process import InProcessTarget
from bridge.mcp.client.transports.stdio import StdioTarget
from bridge.mcp.client.transports.streamable_http import ServerTarget

_OF_ONE_REPLICA: Final = (
    "host",
    "port",
    "keys",
    "shared_store",
    "replica",
    "state",
    "cache",
    "audit",
    "metrics",
    "grpc",
    "grpc_agents",
    "traces",
    "log_calls",
)
"""The settings of a `ProcessPlan` that differ by right: where a replica listens and keeps things, and what it tells to
those who run it."""


def plan_bytes(plan: Plan) -> bytes:
    """What a plan says of everything that its clients see."""
    defaults = ProcessPlan()
    place = replace(plan.place, **{name: getattr(defaults, name) for name in _OF_ONE_REPLICA})
    if (
        tls := place.tls
    ) is not None:  # each has files of its own, and clients see that there is a certificate
        asks = None if tls.client_ca is None else Path("-")
        place = replace(place, tls=replace(tls, certificate=Path("-"), key=Path("-"), client_ca=asks))
    published = {name: replace(published, store=None) for name, published in plan.published.items()}
    return json.dumps(_plain(replace(plan, place=place, published=published)), ensure_ascii=True).encode()


def server_bytes(target: ServerTarget) -> bytes:
    """All that decides what a tool server lists for its first session: how it is reached, and as whom."""
    if isinstance(target, StdioTarget):
        parts: tuple[Any, ...] = (target.argv, target.env, target.cwd)
    elif isinstance(target, InProcessTarget):
        parts = (target,)
    else:
        parts = (target.url, target.headers, target.oauth, target.callers, target.tls)
    parts = (*parts, target.roots) if target.roots else parts
    return json.dumps(_plain(parts), ensure_ascii=True).encode()


def _plain(value: Any) -> Any:
    """A value as JSON, in which nothing depends on this process."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return [type(value).__name__, value.name]
        case BaseModel():
            return _plain(dict(value))
        case Secret():
            return value.value
        case InProcessTarget():
            return [type(value).__name__, value.name]
        case Path() | IPv4Network() | IPv6Network():
            return str(value)
        case Mapping():
            return [[_plain(key), _plain(item)] for key, item in value.items()]
        case Set():
            return sorted(map(_plain, value), key=json.dumps)
        case Sequence():
            return [_plain(item) for item in value]
        case TokenSource():
            return [type(value).__name__, _plain(value.key)]
    if is_dataclass(value):
        compared = [member.name for member in fields(value) if member.compare]
        return [type(value).__name__, *([name, _plain(getattr(value, name))] for name in compared)]
    raise TypeError(f"a plan holds a {type(value).__name__}, of which no bytes are known")
