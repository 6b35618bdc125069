"""Validates again what `made` and `changed` make without validation, in the whole suite.

A value that is not valid, or that validation would change, is a mistake of the bridge. A process notes it in the file
that the variable names, because the bridge may handle an exception. The fixture in conftest.py reads the file after
each test. Programs that the fork server starts note their mistakes too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from bridge.a2a.model import objects
from bridge.a2a.model.objects import Model
from tests.support import examples_understood

VARIABLE: Final = "MCP_A2A_TESTS_INVALID"


def start() -> Path:
    """Validate from now on, here and in programs that are started later; the file for the mistakes."""
    descriptor, name = tempfile.mkstemp(prefix="mcp-a2a-invalid-")
    os.close(descriptor)
    note_in(Path(name))
    install()
    return Path(name)


def note_in(file: Path) -> None:
    """Note mistakes in a file from now on, here and in programs that are started later."""
    file.touch()
    os.environ[VARIABLE] = str(file)


def install() -> None:
    """Validate from now on. Modules that import `made` later get it from here too."""
    made, changed = objects.made, Model.changed
    first = os.environ[VARIABLE]  # a program may have an environment without the variable

    def made_and_checked(model: Any, **fields: Any) -> Any:
        return _checked(made(model, **fields), first)

    def changed_and_checked(self: Model, **fields: Any) -> Any:
        return _checked(changed(self, **fields), first)

    for module in [*sys.modules.values()]:
        if getattr(module, "made", None) is made:
            module.made = made_and_checked  # type: ignore[attr-defined]
    Model.changed = changed_and_checked  # type: ignore[assignment, method-assign]
    examples_understood.install(lambda fault: _note(fault, first))


def mistakes(file: Path) -> str:
    """What was noted since the last call."""
    if not file.stat().st_size:
        return ""
    found = file.read_text()
    file.write_text("")
    return found


def fault_of(new: Model) -> str:
    """Why an object is not what validation makes of its values; empty if it is."""
    kind = type(new)
    given = {name: new.__dict__[name] for name in new.model_fields_set & new.__dict__.keys()}
    try:
        valid = kind(**given, **(new.model_extra or {}))
    except ValidationError as exc:
        return f"{kind.__name__} is not valid: {exc}"
    for name in ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        if getattr(new, name) != getattr(valid, name):
            return f"{kind.__name__}.{name}: {getattr(new, name)!r}, and not {getattr(valid, name)!r}"
    if [*new.__dict__] != [*valid.__dict__]:
        return f"{kind.__name__} has the fields {[*new.__dict__]}, and not {[*valid.__dict__]}"
    for name, value in valid.__dict__.items():
        here = new.__dict__[name]
        if type(here) is not type(value) or here != value:
            return f"{kind.__name__}.{name}: {here!r}, and not {value!r}"
    return ""


def _checked(new: Model, first: str) -> Model:
    if fault := fault_of(new):
        _note(fault, first)
        raise AssertionError(fault)
    return new


def _note(fault: str, first: str) -> None:
    with open(os.environ.get(VARIABLE, first), "a") as noted:
        noted.write(f"{fault}\n")
