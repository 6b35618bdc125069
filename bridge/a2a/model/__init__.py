"""What A2A says, as values: its objects, operations and errors, and the life of a task. Pure."""
