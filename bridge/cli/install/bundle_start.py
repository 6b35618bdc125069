"""Starts the bridge in an unpacked bundle, where this file is `server/main.py`; see `bridge/hosts/bundle.py`.

The form of the host may leave a secret open. Its variable is then empty, or still has the placeholder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from bridge.hosts.bundle import OPTIONS_OF_VARIABLES


def arguments(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The arguments of `mcp-a2a`: those of the manifest, and an option for each secret that the user gave."""
    verb, *rest = words
    given = (
        (option, f"env:{variable}")
        for variable, option in OPTIONS_OF_VARIABLES.items()
        if not environment.get(variable, "").startswith("${") and environment.get(variable)
    )
    return [verb, *(word for pair in given for word in pair), *rest]


if __name__ == "__main__":
    from bridge.cli.main import main

    sys.argv = ["mcp-a2a", *arguments(sys.argv[1:], os.environ)]
    main()
