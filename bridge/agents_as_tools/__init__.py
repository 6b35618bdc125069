"""The second direction: remote A2A agents, served as the tools of an MCP server."""
