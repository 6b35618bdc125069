"""Record conversations anew: `python -m tests.goldens --write [NAME...]`. Without `--write`, show what differs."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import anyio

from tests.goldens.compared import difference, read, stray_files, write
from tests.goldens.conversations import CONVERSATIONS, recorded


def main() -> int:
    """Record or compare; 1 when something differs that was not to be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what is recorded")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="conversations; all of them when none is named"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - CONVERSATIONS.keys():
        parser.error(f"no such conversation: {', '.join(sorted(unknown))}")
    differing = [name for name in options.names or CONVERSATIONS if _differs(name, is_written=options.write)]
    if options.write and not options.names:
        for path in stray_files():
            path.unlink()
            print(f"{path.name} is no conversation any more: deleted")
    return 1 if differing and not options.write else 0


def _differs(name: str, *, is_written: bool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder}
        text = anyio.run(recorded, name, Path(folder))
    found = difference(name, read(name), text)
    if found and is_written:
        write(name, text)
        print(f"{name}: written")
    elif found:
        print(found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
