"""The server of A2A: ASGI applications that serve agents and their catalog."""
