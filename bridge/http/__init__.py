"""HTTP, whatever the protocol on it: our server and its bounds, our client and its guards, checks of each request."""
