"""A bridge in the test's own process that serves what a file says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bridge.assembly.bridge import Bridge
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from tests.support.ports import free_port
from tests.support.running import listening


@asynccontextmanager
async def serving_file(
    folder: Path, text: str, environment: Mapping[str, str] | None = None, **values: str
) -> AsyncIterator[str]:
    """Serve a file; see `bridge_of_file`. The URL of the bridge."""
    async with bridge_of_file(folder, text, environment, **values) as (root, _):
        yield root


@asynccontextmanager
async def bridge_of_file(
    folder: Path, text: str, environment: Mapping[str, str] | None = None, **values: str
) -> AsyncIterator[tuple[str, Bridge]]:
    """Serve a file, in whose text `{root}` is the URL of the bridge and `{name}` each value. The URL and the
    bridge."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    file = folder / "bridge.toml"
    for name, value in {"root": root, **values}.items():
        text = text.replace(f"{{{name}}}", value)
    file.write_text(text, "utf-8")
    plan = plan_from_file(load(file, environment or {}))
    plan.require_safe()
    bridge = Bridge(plan, own_url=root)
    async with listening(bridge.app, port), bridge.run():
        await bridge.apply(plan)
        try:
            yield root, bridge
        finally:
            await bridge.drain(0)
