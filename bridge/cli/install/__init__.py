"""`mcp-a2a install`: A2A agents as an MCP server in the configuration of a host."""
