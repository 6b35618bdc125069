"""`make proxies`: the bridge behind nginx and Caddy, configured as the guide says, driven through TLS."""
