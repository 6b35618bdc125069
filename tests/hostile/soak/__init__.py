"""Half an hour of honest and hostile load on one `mcp-a2a serve`: what it holds at the end, how long callers wait."""
