"""Push notifications that the bridge sends: how clients request them, and how they arrive."""
