"""Speaks A2A: the data model, its wires, the life of a task. Has never heard of MCP."""
