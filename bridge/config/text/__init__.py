"""A file as text: the positions and sources of its values, its diagnostics, and which parts may be secret."""
