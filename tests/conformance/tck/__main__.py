"""Runs the MUST tests of the TCK at a path: `python -m tests.conformance.tck PATH [--python PYTHON] [--docs]`.

Exits with 1 when a test comes out otherwise than expected, with 2 when there is no TCK to run. `--docs` records what
came out and writes docs/conformance.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from bridge.assembly.plan import PushPlan
from bridge.mcp.client.eras import Era
from bridge.translate.overrides import SkillOverride
from tests.conformance import page
from tests.conformance.expected import load_expected
from tests.conformance.recorded import Recorded
from tests.conformance.tck import outcome
from tests.conformance.tck.expected import Expected
from tests.conformance.tck.grpc_proxy import directed_grpc
from tests.conformance.tck.outcome import Outcome, Status
from tests.conformance.tck.server import SAYS, TckServer, directed
from tests.support.grpc_driver import served_over_grpc
from tests.support.limits import url_at
from tests.support.running import config_for, listening, wrapped

RESULTS: Final = Path(".run") / "tck"
"""The TCK's own files of this run."""
RUN_SECONDS: Final = 600
"""The longest run that is not called a hang: nine times what it takes."""
RECEIVERS: Final = frozenset(f"localhost:{port}" for port in range(1024, 65536))
"""Where the TCK may receive push notifications: it chooses a port, and tells of it only in the webhook's URL."""
_TESTS: Final = Path("tests") / "compatibility"


def main() -> int:
    """Run the tests; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.tck", description="The official A2A TCK against the bridge."
    )
    parser.add_argument("path", type=Path, help="a checkout of a2aproject/a2a-tck, branch 1.0-dev")
    parser.add_argument("--python", type=Path, help="what has the TCK's packages (PATH/.venv/bin/python)")
    parser.add_argument("--docs", action="store_true", help="record it, and write docs/conformance.md")
    options = parser.parse_args()
    folder = options.path.resolve()
    python = options.python or folder / ".venv" / "bin" / "python"
    if not (folder / _TESTS).is_dir():
        parser.error(f"{folder} is no checkout of the A2A TCK, branch 1.0-dev: it has no {_TESTS}")
    if not python.is_file():
        parser.error(f"there is no {python}: set the TCK up as its README says, or name one with --python")
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    logging.basicConfig(filename=RESULTS / "log.txt", level=logging.INFO)
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {"XDG_STATE_HOME": state, "XDG_CACHE_HOME": state}
        anyio.run(_run, folder, python)
    return _judged(Outcome.in_junit(RESULTS / "junit.xml", _revision(folder)), docs=options.docs)


async def _run(folder: Path, python: Path) -> None:
    """Run the tests to their end; their exit status says no more than their file."""
    junit = RESULTS.resolve() / "junit.xml"
    with (RESULTS / "tck.txt").open("wb") as sink, anyio.move_on_after(RUN_SECONDS):
        async with system_under_test() as url:
            command = [str(python), "-m", "pytest", str(_TESTS), "-m", "must", "-p", "no:cacheprovider"]
            await anyio.run_process(
                [*command, f"--sut-host={url}", f"--junitxml={junit}", "--tb=short"],
                cwd=folder,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                check=False,
            )


@asynccontextmanager
async def system_under_test() -> AsyncIterator[str]:
    """`mcp-a2a wrap` before the server of the scenarios, with push notifications; the agent's base."""
    async with TckServer().serve() as app, listening(app) as server_url:
        brief = {SAYS: SkillOverride(reply="message")}
        config = config_for(
            url_at(f"{server_url}/mcp"), era=Era.AUTO, store=None, overrides=brief, push=PushPlan(RECEIVERS)
        )
        async with (
            wrapped(config) as bridge,
            listening(directed(bridge.app)) as root_url,
            served_over_grpc(bridge.whole) as server,
            directed_grpc(server.port) as port,
        ):
            bridge.whole.grpc_ports = {"": port}
            yield f"{root_url}{bridge.path}"


def _judged(seen: Outcome, *, docs: bool) -> int:
    expected = Expected.in_file()
    surprises = expected.surprises(seen)
    if docs and not surprises:
        outcome.FILE.write_text(seen.to_text(), "utf-8")
        page.FILE.write_text(page.page(Recorded.in_file(), load_expected(), seen, expected), "utf-8")
    for line in surprises:
        print(line, file=sys.stderr)
    counted = ", ".join(f"{len(seen.of_status(status))} {status}" for status in Status)
    print(f"{len(seen.tests)} MUST tests of TCK {seen.revision}: {counted}; {len(surprises)} surprises")
    print(f"the TCK's own words are in {RESULTS}")
    return 1 if surprises else 0


def _revision(folder: Path) -> str:
    """The commit, when it is a checkout of git."""
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "of no known revision"


if __name__ == "__main__":
    sys.exit(main())
