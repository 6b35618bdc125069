"""How much is measured. Fixed counts, never a time, so that all contestants do the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.contestants import Face, Server, Store


@dataclass(frozen=True)
class Scale:
    """What the command line asks for, the same for every part."""

    rounds: int
    requests: int
    """SendMessage requests in one run at concurrency 32 with the memory store; others are a share of it."""
    servers: Sequence[Server] = ("raw", "everything")
    stores: Sequence[Store] = ("memory", "sqlite")
    faces: Sequence[Face] = ("stdio-legacy", "stdio-modern", "http-legacy", "http-modern")
    streams: int = 3
    """Streams that one run follows to their end."""
    steps: int = 1000
    """Reports of progress in one stream."""
    slow_streams: bool = True
    """Whether streams are measured with SQLite too: one, in one round, as a2a-sdk takes about 20 s for it."""
    held: int = 2000
    """Idle streams."""
    idle_seconds: float = 7.5
    """Three heartbeats."""
    many: int = 20
    """Tool servers in one process."""
    face_calls: int = 100
    """Calls of a face before its memory is looked at."""
    slow_calls: int = 1600
    """Calls of a slow tool, of each replica."""
    quota_calls: int = 300
    """Calls of each replica under a quota of CPU time."""
    quota_rounds: int = 5
    """Runs under that quota, whatever `rounds` says."""
    stored: int = 1_000_000
    """Tasks in a store."""
    reads: int = 1000
    """Requests of each kind to a store with so many tasks."""
    push_rounds: int = 12
    """Rounds of streams with a webhook, and as many without, whatever `rounds` says."""


DEFAULT = Scale(rounds=3, requests=1200)
QUICK = Scale(
    rounds=1,
    requests=100,
    servers=("raw",),
    faces=("stdio-legacy", "http-modern"),
    streams=1,
    slow_streams=False,
    held=100,
    idle_seconds=2.0,
    many=5,
    slow_calls=64,
    quota_calls=64,
    quota_rounds=1,
    push_rounds=1,
    stored=5_000,
    reads=50,
)


def requests_for(scale: Scale, server: Server, store: Store, concurrency: int) -> int:
    """The requests of one run: fewer where each takes longer."""
    share = (1 if store == "memory" else 4) * (1 if server == "raw" else 2) * (1 if concurrency > 1 else 4)
    return max(10, scale.requests // share)
