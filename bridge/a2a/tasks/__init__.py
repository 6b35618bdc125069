"""The tasks of an agent: takes messages in, runs, stores and watches tasks. Knows no wire format."""
