"""HTTP for every protocol: the server and its bounds, the client and its guards, and the checks of each request."""
