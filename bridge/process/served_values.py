"""What a process knows of the configuration that it serves, where it reads no file again.

`wrap`, and `serve` with `--no-reload`, know the configuration from their start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bridge.config.toml_text import ShownValue

if TYPE_CHECKING:
    pass


class FixedConfiguration:
    """The configuration of a process that never reloads. The values are read when somebody asks for them."""

    read_at: float | None = None
    fault = ""
    is_watched = False

    def __init__(self, shown: Callable[[], Sequence[ShownValue]]) -> None:
        self._shown = shown

    @property
    def values(self) -> Sequence[ShownValue]:
        """The values, each with its source."""
        return self._shown()
