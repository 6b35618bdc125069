"""Translates between the protocols: values of one protocol in, values of the other out. Pure, and the core of the
bridge."""
