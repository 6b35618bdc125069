"""A tool server that one of several workers runs for all of them."""
