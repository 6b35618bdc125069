"""Speaks MCP: a thin layer over the official SDK. Has never heard of A2A."""
