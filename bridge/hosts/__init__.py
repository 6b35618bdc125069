"""The MCP hosts on this machine: where they keep their servers, and how one is put there."""
