"""LangGraph's API server as an agent, in memory: a graph whose model is that of the test."""

import os
from pathlib import Path
from uuid import UUID, uuid5

import contract as c

os.environ |= {"LANGSMITH_TRACING": "false", "LANGSMITH_LANGGRAPH_API_VARIANT": "local_dev"}

from langgraph_api.cli import run_server

NAMESPACE_GRAPH = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""As in `langgraph_api.graph`, which wants the environment that `run_server` makes."""

assistant = uuid5(NAMESPACE_GRAPH, "chat")
bound = c.listener()
port = bound.getsockname()[1]
bound.close()
graph = f"{Path(__file__).with_name('chat.py')}:graph"
c.serve_by(
    lambda: run_server("127.0.0.1", port, reload=False, graphs={"chat": graph}, open_browser=False),
    f"http://127.0.0.1:{port}/a2a/{assistant}",
)
