"""The command `tasks`, and timelines as lines."""
