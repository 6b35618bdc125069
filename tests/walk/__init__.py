"""The way of one call through the bridge: which of its functions are entered, counted by `python -m tests.walk`."""
