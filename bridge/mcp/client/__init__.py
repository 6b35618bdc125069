"""Tool servers: reached, kept connected, called, and asked what they want in between."""
