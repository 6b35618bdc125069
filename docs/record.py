"""Records the terminal of README.md: types commands at the demo of the examples, and makes a picture of what they say.

`python docs/record.py` needs nothing but the installed bridge. The picture asks no other site for a font.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "terminal.svg"
PORT: Final = 8080
LINES: Final = (
    f"mcp-a2a call http://127.0.0.1:{PORT} greet name=Ada",
    f'mcp-a2a call http://127.0.0.1:{PORT} "Please greet Ada"',
    f"mcp-a2a call http://127.0.0.1:{PORT}/mcp",
    f"mcp-a2a call http://127.0.0.1:{PORT}/mcp greet name=Ada",
)
_SECONDS: Final = 120
_FORMAT: Final = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect fill="#161b22" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> int:
    """Serve the demo, type the commands, and write the picture."""
    programs = Path(sys.executable).parent
    env = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "96",
    }
    console = Console(record=True, width=96, file=StringIO())
    words = [str(programs / "mcp-a2a"), "serve", "--port", str(PORT), str(ROOT / "examples" / "demo.toml")]
    bridge = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
    try:
        _wait()
        for line in LINES:
            done = subprocess.run(
                ["sh", "-c", line], env=env, capture_output=True, text=True, timeout=_SECONDS, check=True
            )
            console.print(Text(f"$ {line}", style="bold"))
            console.print(Text(done.stdout.rstrip()))
    finally:
        bridge.terminate()
        bridge.wait(_SECONDS)
    PICTURE.write_text(
        console.export_svg(title="mcp-a2a", code_format=_FORMAT, unique_id="t"), encoding="utf-8"
    )
    return 0


def _wait() -> None:
    last = time.monotonic() + _SECONDS
    while time.monotonic() < last:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz") as answer:
                json.load(answer)
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the demo does not serve")


if __name__ == "__main__":
    sys.exit(main())
