"""`python -m bridge` is the command `mcp-a2a`."""

from bridge.cli.main import main

if __name__ == "__main__":
    main()
