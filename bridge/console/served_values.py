"""The configuration of a process that reads no file again, for the configuration page.

`wrap`, and `serve` with `--no-reload`, know the configuration from their start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.config.toml_text import ShownValue


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
