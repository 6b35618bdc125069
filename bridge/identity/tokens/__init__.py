"""Access tokens with which the bridge calls its peers: as itself, or for a caller."""
