"""Remote agents that the bridge calls: their cards, their clients, and in whose name they are called."""
