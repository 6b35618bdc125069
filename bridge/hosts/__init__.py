"""The MCP hosts on this machine: where each keeps its servers, and how a server is added there."""
