"""Which folders hold tests of requirements alone, and which of their files hold others too, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FOLDERS: Final = ("a2a", "mcp", "translate", "tools_as_agent", "agents_as_tools")
"""Below tests/: each test in them has a mark, or its file stands in the table."""

EXEMPT: Final[Mapping[str, str]] = {
    "a2a/model/test_objects.py": "what goes without a mark is about the model as Python values, and on no wire",
    "a2a/layers/test_layers.py": "it is about the order of the bridge's own parts, of which A2A knows nothing",
    "a2a/grpc/test_grpc_client.py": "what goes without a mark is about faults of peers and which address is called",
    "a2a/grpc/test_grpc_server.py": "what goes without a mark is about imports and bounds, and on no wire",
    "a2a/grpc/test_messages.py": "what goes without a mark is about the JSON of the tests themselves",
    "a2a/client/test_hops.py": "it is about what the bridge tells of its requests, of which A2A knows nothing",
    "mcp/client/test_asking_server.py": "it is about the server that other tests talk to, and not about the bridge",
    "mcp/client/test_kept_listings.py": "it is about files of the bridge, of which MCP knows nothing",
    "mcp/client/transports/test_in_process.py": "it is about objects of one process, and MCP has no rule for them",
    "mcp/client/test_roots.py": "it is about a key of the file; roots are left out of the requirements",
    "mcp/test_schema_checks.py": "what goes without a mark is about what a check costs, and on no wire",
}
"""Files in which tests may go without a mark."""
