"""The version of this package: also what its MCP clients, servers and cards say of it."""

__version__ = "0.1.0"
