"""A file as text: the positions and sources of its values, its diagnostics, and the parts that may be secret."""
