"""A bridge as a process: serves it until a signal comes, reloads its configuration, previews it, and shuts it down."""
