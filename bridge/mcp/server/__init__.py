"""The bridge's MCP server: serves a face to hosts of every revision of MCP."""
