"""The transports to a tool server: a child process, Streamable HTTP, the older HTTP+SSE, and an object in this
process."""
