"""Push notifications that are sent: how clients ask for them, and how they arrive."""
