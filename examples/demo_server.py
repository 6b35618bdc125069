"""A small MCP server to try the bridge with: `mcp-a2a wrap -- python examples/demo_server.py`.

Written on the official SDK, with one tool for each thing worth seeing: plain text, structured output, progress,
an image, a failure, and a question in the middle of a call.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Image, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

READ_ONLY = ToolAnnotations(read_only_hint=True)

server = MCPServer(
    "demo",
    version="1.0",
    instructions="Small tools that show what a bridge carries across.",
    log_level="CRITICAL",  # a tool that fails says so in its result
)


class Trip(BaseModel):
    """How long a trip takes."""

    kilometres: float
    hours: float


@server.tool(annotations=READ_ONLY)
def greet(name: Annotated[str, Field(description="Who is greeted", examples=["Ada"])]) -> str:
    """Greet someone."""
    return f"Hello, {name}!"


@server.tool(annotations=READ_ONLY)
def trip(
    kilometres: Annotated[float, Field(description="How far", gt=0)],
    speed: Annotated[float, Field(description="Kilometres an hour", gt=0)] = 80,
) -> Trip:
    """Say how long a trip takes, as structured output."""
    return Trip(kilometres=kilometres, hours=round(kilometres / speed, 2))


@server.tool(annotations=READ_ONLY)
async def countdown(
    context: Context,
    steps: Annotated[int, Field(description="How many steps", ge=1, le=60)] = 5,
    pause_seconds: Annotated[float, Field(description="Between two steps", ge=0, le=10)] = 0.5,
) -> str:
    """Count down, with progress at each step."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps, f"{steps - step} to go")
        await anyio.sleep(pause_seconds)
    return "Liftoff"


@server.tool(annotations=READ_ONLY)
def swatch(
    colour: Annotated[str, Field(description="As rrggbb", pattern="^[0-9a-fA-F]{6}$")] = "3366cc",
) -> Image:
    """Paint a small picture in one colour."""
    pixels = (b"\x00" + bytes.fromhex(colour) * 32) * 32
    return Image(data=_png(32, 32, pixels), format="png")


@server.tool(annotations=READ_ONLY)
def divide(dividend: float, divisor: float) -> float:
    """Divide, and fail when that is not possible."""
    if divisor == 0:
        raise ToolError("nothing can be divided by zero")
    return dividend / divisor


class Seats(BaseModel):
    """What a booking needs to know."""

    number: int = Field(description="How many seats", ge=1, le=9)
    window: bool = Field(default=False, description="At the window")


def _ask_for_seats(destination: str) -> Elicit[Seats]:
    return Elicit(f"Which seats to {destination}?", Seats)


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
def book(
    destination: Annotated[str, Field(description="Where to", examples=["Lisbon"])],
    seats: Annotated[Seats, Resolve(_ask_for_seats)],
) -> str:
    """Book seats, after asking which ones."""
    where = " at the window" if seats.window else ""
    return f"Booked {seats.number} to {destination}{where}"


def _png(width: int, height: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


if __name__ == "__main__":
    server.run("stdio")
