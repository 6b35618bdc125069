"""The console in a real browser: `make console`. No other target needs a browser."""
