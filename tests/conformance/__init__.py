"""The bridge before the official conformance suite of MCP: `python -m tests.conformance`."""
