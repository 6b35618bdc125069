"""The command line: options to values, values to words. No logic of its own."""
