"""The client of A2A: finds remote agents, calls them, and follows their tasks to the end."""
