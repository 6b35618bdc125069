"""The options of a command as a document: what a file that says the same would hold, and which option says what.

It is checked as a file is. What is wrong with it is told of the option, since there are no lines to show. Pure.
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
    """What options say."""

    data: dict[str, Any] = field(repr=False)
    option_at: Callable[[KeyPath], str]
    """The option that says what is at a path; "" for what none says."""
    folder: Path = Path()
    """What relative paths begin at: the current folder."""

    def place(self, path: KeyPath) -> str:
        """Which option says it."""
        return self.option_at(path)

    def sources(self) -> Iterator[tuple[KeyPath, ValueSource]]:
        """Every value, with its option."""
        for path in leaves(self.data):
            yield path, ValueSource("command line", self.option_at(path))

    def refuse(self, faults: Iterable[ConfigFault], elsewhere: Iterable[Diagnostic]) -> None:
        """Tell what is wrong with it, or else in other files.

        Raises:
            UsageError: something is.
        """
        if said := list(dict.fromkeys(map(self._told, faults))):
            raise UsageError("\n".join(said))
        if others := list(elsewhere):
            raise ConfigError(others)

    def _told(self, fault: ConfigFault) -> str:
        option = self.option_at(fault.path)
        is_entry = option == self.option_at(fault.path[:-1])
        return told_of_option(fault, option, is_entry=is_entry)


def told_of_option(fault: ConfigFault, option: str, *, is_entry: bool = False) -> str:
    """What is wrong with the value of an option, which stands in the place of the key; or with an entry of it."""
    key = f"`{key_name(fault.path)}` "
    words = f"{option}: {fault.message}" if option else fault.message
    if option and not is_entry and fault.message.startswith(key):
        words = f"{option} {fault.message.removeprefix(key)}"
    return f"{words}; {fault.hint}" if fault.hint else words
