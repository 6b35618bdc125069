"""The A2A extensions that the bridge declares or passes on. Pure."""
