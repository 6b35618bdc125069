"""`python -m bridge` is the command `mcp-a2a`."""

import os
import sys

# With `-m` and without `-P`, Python imports from the current folder first, which may belong to anyone.
if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]

from bridge.cli.main import main

if __name__ == "__main__":
    main()
