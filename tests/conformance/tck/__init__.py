"""The official A2A TCK (`a2aproject/a2a-tck`) against the bridge. It is not part of this repository: its path is given.

`python -m tests.conformance.tck PATH` runs its MUST tests, and says which came out otherwise than expected.

server                      the MCP server that does what the TCK's scenarios ask of an agent
grpc_proxy                  names the tool in messages over gRPC
outcome                     what came of each test
expected, expected.toml     which of them fail, and which are not made, each with its reason
page, results.json          what was recorded, and its part of docs/conformance.md
"""
