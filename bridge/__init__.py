"""mcp-a2a: a bridge between the Model Context Protocol and the Agent2Agent protocol."""

__version__ = "0.1.0"
