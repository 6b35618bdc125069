"""The client of MCP: connects to tool servers, stays connected, calls tools, and passes on the servers' questions."""
