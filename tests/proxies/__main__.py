"""Run every block of the guide: `make proxies`, or `python -m tests.proxies`."""

from __future__ import annotations

import logging
import re
import sys
import tempfile
from pathlib import Path

import anyio

from tests.proxies.guide import GUIDE, Case, cases
from tests.proxies.installed import NotInstalledError, install, version_of
from tests.proxies.looks import drive
from tests.proxies.machine import proxied
from tests.support.pages import blocks_of, typed_in
from tests.support.reader import Reader, reading


def prepared(reader: Reader, case: Case) -> None:
    """Type what the guide says of the bridge, for the address of this case."""
    for block in blocks_of(GUIDE):
        if block.file == "bridge.toml":
            text = re.sub(r'public_url = ".*"', f'public_url = "{case.base}"', block.text)
            reader.write(block.file, text.replace("\ncommand", "\nconcurrency = 1\ncommand"), adds=False)
        elif block.language == "console":
            for typed in typed_in(block):
                if not typed.line.startswith("sudo"):
                    reader.type(typed)


async def run(case: Case) -> None:
    """Run one case from the start to the end."""
    with tempfile.TemporaryDirectory() as place:
        home, folder = Path(place) / "home", Path(place) / "proxy"
        home.mkdir()
        folder.mkdir()
        with reading(home) as reader:
            prepared(reader, case)
            try:
                async with proxied(case, reader, folder) as client:
                    with anyio.fail_after(60):
                        await drive(case, client, say)
            except BaseException:
                say((folder / "proxy.log").read_text())
                say("".join(reader.servers[0].said))
                raise


def say(words: str) -> None:
    """Tell who started this."""
    print(words, flush=True)


def main() -> int:
    """Install, run every case; gives the exit code."""
    try:
        install()
    except NotInstalledError as exc:
        say(f"proxies: {exc}")
        return 1
    logging.getLogger("mcp").setLevel("CRITICAL")  # its client logs what comes once a call is given up
    for case in cases():
        say(f"{version_of(case.program)}: {case.base}")
        anyio.run(run, case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
