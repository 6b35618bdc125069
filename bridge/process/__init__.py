"""A bridge as a process: served until a signal comes, reloaded, previewed, and shut down."""
