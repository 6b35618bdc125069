"""The interop matrix: frameworks that people run, as clients of a wrapped MCP server and as agents behind tools.

`make interop-matrix` runs it. Each peer is a folder of `peers/` with an environment of its own, and tells what came
of its scenarios by one contract, which `peers/contract.py` describes: that is all a new peer needs.

- `scenarios`: what is tried, in both directions
- `environments`: the peers that there are, and the installation of what each needs
- `tool_server`, `model`: what stands behind the bridge and behind the frameworks
- `peer_as_client`, `peer_as_agent`: one peer run in one direction
- `recorded`, `explained`, `page`: what came of a run, why some cells are not green, and docs/interop.md
"""
