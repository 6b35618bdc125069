"""A real Prometheus on loopback, which reads bridges as examples/operate/prometheus.yml says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from tests.operate.asked import OPERATE
from tests.operate.installed import NotInstalledError, Programs, programs
from tests.support.ports import free_port

WAIT_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2

Labels = dict[str, str]


def programs_or_skip() -> Programs:
    """The programs, or a skip that says why there are none."""
    try:
        return programs()
    except NotInstalledError as exc:
        pytest.skip(str(exc))


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    client: httpx2.AsyncClient
    log: Path

    async def get(self, path: str, **params: str) -> Any:
        """The data that it answers with.

        Raises:
            AssertionError: it says that something is wrong.
        """
        answer = (await self.client.get(f"/api/v1/{path}", params=params)).json()
        assert answer["status"] == "success", (params, answer)
        return answer["data"]

    async def query(self, expression: str) -> list[tuple[Labels, float]]:
        """What an expression gives now: the labels and the number of each series; NaN is none."""
        found = (await self.get("query", query=expression))["result"]
        numbers = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, number) for labels, number in numbers if number == number]

    async def until(self, expression: str, *, is_there: bool = True) -> list[tuple[Labels, float]]:
        """Wait until an expression gives something, or nothing; what it gives."""
        with anyio.move_on_after(WAIT_SECONDS):
            while True:
                found = await self.query(expression)
                if bool(found) == is_there:
                    return found
                await anyio.sleep(_LOOK_SECONDS)
        raise AssertionError(f"{expression} gives {'nothing' if is_there else 'something'}")

    async def firing(self) -> dict[str, list[dict[str, Any]]]:
        """The alerts that fire, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in (await self.get("alerts"))["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    async def until_fires(self, *names: str) -> dict[str, list[dict[str, Any]]]:
        """Wait until all of these alerts fire; those that do."""
        found: dict[str, list[dict[str, Any]]] = {}
        with anyio.move_on_after(WAIT_SECONDS):
            while not set(names) <= (found := await self.firing()).keys():
                await anyio.sleep(_LOOK_SECONDS)
            return found
        raise AssertionError(f"{set(names) - found.keys()} did not fire in {WAIT_SECONDS:g} s")

    async def faults_of_rules(self) -> list[str]:
        """What went wrong with the rules as they were evaluated last."""
        groups = (await self.get("rules"))["groups"]
        return [
            f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}"
            for group in groups
            for rule in group["rules"]
            if rule["health"] != "ok"
        ]

    def complaints(self) -> list[str]:
        """The warnings and errors in its log."""
        return re.findall(r"^.*level=(?:warn|error).*$", self.log.read_text(), re.MULTILINE)


@asynccontextmanager
async def reading(folder: Path, ports: Sequence[int], found: Programs) -> AsyncIterator[Prometheus]:
    """Read bridges each second, by the files of the examples. Only the time is shorter: alerts wait for nothing."""
    config = (OPERATE / "prometheus.yml").read_text()
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    quick = _replaced(r'targets: \["127\.0\.0\.1:9464"\]', f"targets: [{targets}]", config)
    quick = _replaced(r"scrape_interval: 15s", "scrape_interval: 1s", quick)
    (folder / "prometheus.yml").write_text(f"global: {{ evaluation_interval: 1s }}\n{quick}")
    rules = _replaced(r"^        for: .*\n", "", (OPERATE / "alerts.yaml").read_text())
    (folder / "alerts.yaml").write_text(rules)
    port, log = free_port(), folder / "prometheus.log"
    words = [
        str(found.prometheus),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as said, subprocess.Popen(words, cwd=folder, stdout=said, stderr=said) as process:
        try:
            async with httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS
            ) as client:
                one = Prometheus(client, log)
                await _until_ready(one, process)
                yield one
        finally:
            process.kill()


async def _until_ready(one: Prometheus, process: subprocess.Popen[bytes]) -> None:
    with anyio.move_on_after(WAIT_SECONDS):
        while process.poll() is None:
            try:
                if (await one.client.get("/-/ready")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass  # it does not listen yet
            await anyio.sleep(_LOOK_SECONDS)
    raise AssertionError(f"Prometheus did not start:\n{one.log.read_text()}")


def _replaced(pattern: str, by: str, text: str) -> str:
    made, number = re.subn(pattern, by, text, flags=re.MULTILINE)
    assert number, f"{pattern} is not in the example"
    return made
