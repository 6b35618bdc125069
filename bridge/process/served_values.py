"""What a process knows of the configuration that it serves, where it reads no file again by itself.

One of several workers hears it of its supervisor. `wrap`, and `serve` with `--no-reload`, know it from their start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.config.toml_text import ShownValue

if TYPE_CHECKING:
    from bridge.console.configuration import ServedConfiguration


@dataclass(frozen=True, slots=True)
class ConfigurationState:
    """The configuration at one moment; see `ServedConfiguration` of the console."""

    values: tuple[ShownValue, ...]
    read_at: float | None = None
    fault: str = ""
    is_watched: bool = False

    @classmethod
    def of(cls, served: ServedConfiguration) -> ConfigurationState:
        """What is known at the moment."""
        return cls(tuple(served.values), served.read_at, served.fault, served.is_watched)


class FixedConfiguration:
    """The configuration of a process that takes over no changes of it. The values are read when somebody asks."""

    read_at: float | None = None
    fault = ""
    is_watched = False

    def __init__(self, shown: Callable[[], Sequence[ShownValue]]) -> None:
        self._shown = shown

    @property
    def values(self) -> Sequence[ShownValue]:
        """The values, each with its source."""
        return self._shown()


class ToldConfiguration:
    """The configuration as another process told it last."""

    def __init__(self, first: ConfigurationState) -> None:
        self.state = first

    @property
    def values(self) -> Sequence[ShownValue]:
        """The values that are served."""
        return self.state.values

    @property
    def read_at(self) -> float | None:
        """When the files were last read again."""
        return self.state.read_at

    @property
    def fault(self) -> str:
        """Why the files were refused; "" if they are served."""
        return self.state.fault

    @property
    def is_watched(self) -> bool:
        """Whether changes of the files are taken over."""
        return self.state.is_watched
