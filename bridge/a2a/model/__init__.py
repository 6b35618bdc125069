"""The objects, operations and errors of A2A, and the life of a task. Pure."""
