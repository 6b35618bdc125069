"""The first direction: MCP tool servers, served as an A2A agent."""
