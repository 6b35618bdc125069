"""A2A: the data model, its wire formats, and the life of a task. Knows nothing of MCP."""
