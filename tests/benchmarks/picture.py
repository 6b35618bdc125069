"""A picture of some bars, as SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from tests.benchmarks.figures import number

_WIDTH: Final = 760
_NAMES: Final = 200
_BARS: Final = 470
_ROW: Final = 30
_TITLE: Final = 36
_STYLE: Final = """  rect { fill: #8c959f } .own { fill: #0969da } text { fill: #1f2328 } .quiet { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    rect { fill: #6e7681 } .own { fill: #58a6ff } text { fill: #f0f6fc } .quiet { fill: #9198a1 }
  }"""


def bars(panels: Mapping[str, Sequence[tuple[str, float]]], words: str) -> str:
    """The picture: for each title its named values as bars. The bar of mcp-a2a has its own colour.

    `words` says the same as the picture, for readers who do not see it.
    """
    lines, y = [], 4
    for title, rows in panels.items():
        lines.append(f'<text class="quiet" x="10" y="{y + 20}">{escape(title)}</text>')
        y += _TITLE
        most = max(value for _, value in rows)
        for name, value in rows:
            own = ' class="own"' if name == "mcp-a2a" else ""
            width = round(_BARS * value / most, 1)
            lines.append(f'<text x="{_NAMES - 10}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
            lines.append(f'<rect{own} x="{_NAMES}" y="{y}" width="{width}" height="20" rx="3"/>')
            lines.append(f'<text x="{_NAMES + width + 8}" y="{y + 15}">{number(value)}</text>')
            y += _ROW
        y += 6
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img" aria-labelledby="title"'
    return "\n".join(
        [
            f'{head} font-family="system-ui, sans-serif" font-size="14">',
            f'<title id="title">{escape(words)}</title>',
            f"<style>\n{_STYLE}\n</style>",
            *lines,
            "</svg>",
            "",
        ]
    )
