"""The tasks of an agent: accepts messages; runs, stores and watches tasks. Knows no wire format."""
