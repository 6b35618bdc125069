"""The version of this package, which its MCP clients, servers and cards state, too."""

__version__ = "0.1.0"
