"""The options of a command as a document: the data of an equivalent file, and the option behind each value. Pure.

The document is checked as a file is. Messages name the option, because there are no lines to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.config.text.diagnostics import ConfigError, Diagnostic
from bridge.config.text.document import ConfigFault, ValueSource
from bridge.config.text.masking import leaves
from bridge.config.text.positions import KeyPath
from bridge.config.text.wording import key_name
from bridge.errors import UsageError


@dataclass(frozen=True)
class OptionDocument:
    """Options as the data of a configuration."""

    data: dict[str, Any] = field(repr=False)
    option_at: Callable[[KeyPath], str]
    """Gives the option behind the value at a path; "" if there is none."""
    folder: Path = Path()
    """The folder at which relative paths begin: the current one."""

    def place(self, path: KeyPath) -> str:
        """The option behind the value at a path."""
        return self.option_at(path)

    def sources(self) -> Iterator[tuple[KeyPath, ValueSource]]:
        """Yield every value with its option."""
        for path in leaves(self.data):
            yield path, ValueSource("command line", self.option_at(path))

    def refuse(self, faults: Iterable[ConfigFault], elsewhere: Iterable[Diagnostic]) -> None:
        """Report the faults of the options or, if there are none, those of other files.

        Raises:
            UsageError: there is a fault.
        """
        if messages := list(dict.fromkeys(map(self._told, faults))):
            raise UsageError("\n".join(messages))
        if others := list(elsewhere):
            raise ConfigError(others)

    def _told(self, fault: ConfigFault) -> str:
        option = self.option_at(fault.path)
        is_entry = option == self.option_at(fault.path[:-1])
        return told_of_option(fault, option, is_entry=is_entry)


def told_of_option(fault: ConfigFault, option: str, *, is_entry: bool = False) -> str:
    """The message of a fault, with the option in place of the key. `is_entry` means a single entry of the option."""
    key = f"`{key_name(fault.path)}` "
    words = f"{option}: {fault.message}" if option else fault.message
    if option and not is_entry and fault.message.startswith(key):
        words = f"{option} {fault.message.removeprefix(key)}"
    return f"{words}; {fault.hint}" if fault.hint else words
