"""`mcp-a2a call`: one skill of an agent, or one tool of a server, from a shell."""
