"""The pages on which a caller logs in at a peer with a browser."""
