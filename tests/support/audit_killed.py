"""A process that is killed while it writes an audit: it writes lines of many lengths, and prints those on the disk.

python -m tests.support.audit_killed FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from bridge.audit.file import AuditFile
from bridge.audit.journal import AuditJournal

ROTATE_BYTES = 65_536


async def _main(path: Path) -> None:
    with AuditFile(path, ROTATE_BYTES) as file:
        journal = AuditJournal(file)
        async with journal.running(), anyio.create_task_group() as callers:
            print("begun", flush=True)
            await journal.commit({"event": "start"})
            for caller in range(4):
                callers.start_soon(_call, journal, caller)


async def _call(journal: AuditJournal, caller: int) -> None:
    number = 0
    while True:
        number += 1
        seq = await journal.commit({"event": "intent", "text": "x" * (number * 97 % 500), "caller": caller})
        print(seq, flush=True)
        journal.note({"event": "call", "intent": seq})


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]))
