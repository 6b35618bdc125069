"""The ways to a tool server: a child process, Streamable HTTP, and the HTTP+SSE before it."""
