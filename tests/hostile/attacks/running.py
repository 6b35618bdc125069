"""Runs one attack on a bridge of its own, and says what it cost."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2

from tests.benchmarks.usage import cpu_seconds, forget_peak, peak_rss_bytes, rss_bytes
from tests.benchmarks.workplace import READY_SECONDS, Started, Workplace
from tests.hostile.attacks import honest
from tests.hostile.attacks.attack import FACE, MEGABYTE, TOKENS, Attack, Scene, Service, file_of, state_of
from tests.hostile.target import FindError
from tests.support.running import call_part, message
from tests.support.small_disk import small_disk

ATTACK_SECONDS: Final = 90.0
"""How long an attack may take: they are made to take a few seconds."""
_LEAST_SECONDS: Final = 2.0
"""How long the honest caller goes on at least, also after an attack that was over at once."""
_BACK_SECONDS: Final = 15.0
"""How soon service has to be back."""
_LOOK_SECONDS: Final = 0.05
_STORE_WORDS: Final = "The bridge could not store"
"""What a task says that ended while nothing could be kept."""


@dataclass(frozen=True)
class Report:
    """What an attack came to and what it cost; each fault is a bound that did not hold."""

    attack: str
    came_to: str
    peak_bytes: int
    cpu_seconds: float
    log_bytes: int
    calls: int
    """Of the honest caller."""
    sent_again: int
    """Of these, for a connection that had been closed between two calls."""
    wait_median_seconds: float
    wait_most_seconds: float
    service: str
    faults: tuple[str, ...] = ()


async def run_attack(attack: Attack, place: Workplace) -> Report:
    """Make an attack.

    Raises:
        NoSmallDiskError: it needs a disk that cannot be made here.
    """
    async with scene_of(attack, place) as scene, AsyncExitStack() as stack:
        caller = stack.enter_context(place.started([sys.executable, honest.__file__]))
        where = {"port": scene.port, "path": f"/agents/{FACE}", "token": TOKENS["honest"]}
        await anyio.to_thread.run_sync(caller.ask, where)
        log_before, cpu_before = scene.log.stat().st_size, cpu_seconds(scene.pid)
        before = rss_bytes(scene.pid)
        forget_peak(scene.pid)
        began, faults = anyio.current_time(), []
        try:
            with anyio.fail_after(ATTACK_SECONDS):
                came_to = await attack.make(scene)
        except (FindError, TimeoutError) as exc:
            came_to = f"FOUND: {exc}" if str(exc) else f"FOUND: no end within {ATTACK_SECONDS:g} s"
            faults.append(came_to)
        await anyio.sleep_until(began + _LEAST_SECONDS)
        told = await anyio.to_thread.run_sync(caller.ask, {})
        service, out_of_service = await _service(scene, attack.service)
        peak, log = peak_rss_bytes(scene.pid) - before, scene.log.stat().st_size - log_before
        faults += [*_beyond(attack, peak, log), *_unserved(attack.service, told["outcomes"]), *out_of_service]
        waits = told["waits"] or [0.0]
        if attack.wait_most_seconds is not None and max(waits) > attack.wait_most_seconds:
            faults.append(f"an honest call waited {max(waits):.2f} s, {attack.wait_most_seconds:g} at most")
        return Report(
            attack.name,
            came_to,
            peak,
            cpu_seconds(scene.pid) - cpu_before,
            log,
            len(told["waits"]),
            told["again"],
            statistics.median(waits),
            max(waits),
            service,
            tuple(faults),
        )


@asynccontextmanager
async def scene_of(attack: Attack, place: Workplace) -> AsyncIterator[Scene]:
    """A bridge of the attack's own."""
    folder, port = place.new_file(f"-{attack.name.replace(' ', '-')}"), place.new_port()
    (folder / "disk").mkdir(parents=True)
    for name, token in TOKENS.items():
        (folder / f"{name}.token").write_text(token)
        (folder / f"{name}.token").chmod(0o600)
    async with AsyncExitStack() as stack:
        disk = (
            stack.enter_context(small_disk(folder / "disk", attack.disk_bytes)) if attack.disk_bytes else None
        )
        config = folder / "bridge.toml"
        config.write_text(file_of(port, "disk/tasks.db" if disk else "tasks.db"))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=ATTACK_SECONDS, trust_env=False))
        bridge = stack.enter_context(place.started(_command(config, attack.descriptors)))
        scene = Scene(port, bridge.pid, config, bridge.log, http, disk)
        await _until_ready(scene, bridge)
        yield scene


def _command(config: Path, descriptors: int | None) -> list[str]:
    command = [sys.executable, "-P", "-m", "bridge", "serve", str(config)]
    return ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command] if descriptors else command


async def _until_ready(scene: Scene, bridge: Started) -> None:
    with anyio.fail_after(READY_SECONDS):
        while True:
            try:
                if (await scene.readiness()).status_code == 200:
                    return
            except httpx2.TransportError:
                if bridge.process.poll() is not None:
                    raise FindError(f"the bridge did not start: {scene.log.read_text()}") from None
            await anyio.sleep(_LOOK_SECONDS)


async def _service(scene: Scene, wanted: Service) -> tuple[str, list[str]]:
    """Whether a call is served after the attack, and what is wrong with that."""
    found = await _call(scene)
    with anyio.move_on_after(_BACK_SECONDS):
        while wanted is Service.PAUSED and found != "COMPLETED":
            await anyio.sleep(_LOOK_SECONDS)
            found = await _call(scene)
    if wanted is not Service.ENDED:
        return ("served", []) if found == "COMPLETED" else (found, [f"a call afterwards came to {found}"])
    ready = (await scene.readiness()).status_code
    said = f"not ready ({ready}), calls are {found}"
    return said, [] if ready == 503 and found.startswith("503") else [said]


async def _call(scene: Scene) -> str:
    part = call_part("echo", text="afterwards")
    try:
        return state_of(await scene.agent(principal="honest").post("SendMessage", message(part)))
    except (httpx2.TransportError, json.JSONDecodeError) as exc:
        return f"no answer: {exc!r}"


def _beyond(attack: Attack, peak: int, log: int) -> list[str]:
    bounds = ((peak, attack.most_bytes, "of memory"), (log, attack.log_most_bytes, "of log"))
    return [
        f"{had / MEGABYTE:.1f} MB {what}, where {most / MEGABYTE:g} are the most"
        for had, most, what in bounds
        if had > most
    ]


def _unserved(service: Service, outcomes: dict[str, Any]) -> list[str]:
    """What honest calls came to beside what the attack may do to them."""
    return [
        f"{count} honest calls of {sum(outcomes.values())}: {outcome}"
        for outcome, count in outcomes.items()
        if outcome != honest.COMPLETED
        and (service is Service.KEPT or not (outcome == honest.REFUSED or _STORE_WORDS in outcome))
    ]
