"""`mcp-a2a audit`: verifies the files of an audit, and prints the head to keep elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.errors import UsageError, counted

if TYPE_CHECKING:
    from bridge.audit.chain import ChainHead
    from bridge.audit.verification import Verification

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def audit() -> None:
    """Verify the files of an audit, and print the head of its chain.

    \b
    Print the head, to keep it elsewhere:   mcp-a2a audit head audit.jsonl
    Verify all files of a chain:            mcp-a2a audit verify audit.jsonl*
    Verify that no end was cut off:         mcp-a2a audit verify --head "$HEAD" audit.jsonl*
    """


@audit.command(short_help="Verify the files of an audit.")
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILES...")
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="NUMBER:HASH",
    help="A head that `audit head` has printed. Its line must be in the files. Repeatable.",
)
def verify(**options: Any) -> int:
    """Verify the files of one chain: no line was changed, added, removed or moved.

    The files are read in the order of their lines. Each process (`serve --audit-file`) has a chain of its own: verify
    the chains one by one. Without --head nothing shows that the end of the last file was cut off.

    \b
    mcp-a2a audit verify audit.jsonl*
    mcp-a2a audit verify --head "$(cat kept-head)" audit.jsonl*

    Exit codes: 0 the chain is whole; 1 it is broken, or a head is not in it; 2 the command or a file is at fault.
    """
    from bridge.audit.verification import verified
    from bridge.cli import render

    # A shell's `audit.jsonl*` also matches the lock file.
    from bridge.local.file_lock import LOCK_ENDING

    paths = [path for path in options["files"] if not path.name.endswith(LOCK_ENDING)]
    try:
        found = verified(paths, [_head(text) for text in options["heads"]])
    except OSError as exc:
        raise UsageError(f"{exc.filename} cannot be read: {exc.strerror}") from exc
    for fault in found.faults:
        render.complain(fault)
    render.result(_summary(found))
    return 1 if found.faults else 0


@audit.command(short_help="Print the head of a chain.")
@click.argument("file", type=_FILE)
def head(**options: Any) -> int:
    """Print the number and the hash of the last line of a file, as `audit verify --head` takes them.

    Keep the head where nobody who can write the file can write: they could replace the whole chain.

    Exit codes: 0 done; 2 the file cannot be read, or does not end as an audit does.
    """
    from bridge.audit.chain import NotALineError
    from bridge.audit.file import last_head
    from bridge.cli import render

    try:
        found = last_head(options["file"])
    except NotALineError as exc:
        raise UsageError(str(exc)) from exc
    except OSError as exc:
        raise UsageError(f"{options['file']} cannot be read: {exc.strerror}") from exc
    render.result(str(found))
    return 0


def _head(text: str) -> ChainHead:
    from bridge.audit.chain import ChainHead

    try:
        return ChainHead.parse(text)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc


def _summary(found: Verification) -> str:
    """The verification as one line."""
    if found.first is None:
        return "no line of an audit was found"
    state = "the chain is broken" if found.faults else "the chain is whole"
    lines = f"{counted(found.lines, 'line')} of {counted(found.processes, 'process', 'processes')}"
    parts = [f"{state}: {lines}, head {found.last}"]
    if found.first.seq:
        parts.append(f"it begins after line {found.first}, which is not in these files")
    if found.torn:
        parts.append(f"{counted(found.torn, 'torn line')}, as a killed process leaves")
    if found.lost:
        parts.append(f"{counted(found.lost, 'line')} could not be written when the disk failed")
    return "; ".join(parts)
