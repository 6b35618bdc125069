"""Benchmarks: the bridge beside the MCP SDK's client and an agent made with a2a-sdk.

`python -m tests.benchmarks --help` says how to run them, docs/benchmarks.md how to read them.

Each run of each contestant is a process of its own, the load comes from another one, and contestants take turns
(A B A B ...), so that what the machine does meanwhile meets all of them. Nothing here asserts a time.

calls, streaming, idle, starting    what is measured, one part of the output each; `scale` says how much of it
faces, face_starting                the same for the other direction, `mcp-a2a expose`
contestants, workplace              who is measured, and how processes are started and ended
load (load_calls, load_streams)     what asks over HTTP, with the requests of `messages`
direct_client                       what asks through the MCP SDK
agent_client                        what asks an agent through a library; with the former, by the loop in `asking`
sdk_agent, bare_streams, bare_mcp   what answers, beside `mcp-a2a wrap`, under its uvicorn settings (`like_bridge`)
many_servers                        several bridges in one process
usage, figures                      what Linux says about a process; samples, spreads and tables
"""
