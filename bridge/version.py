"""The version of this package, which MCP clients, MCP servers and agent cards also report."""

__version__ = "0.1.0"
