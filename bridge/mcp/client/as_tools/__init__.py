"""Prompts and resources of a tool server, presented as tools."""
