"""Resources, prompts and completions of the MCP servers behind remote agents, as those of one MCP server."""
