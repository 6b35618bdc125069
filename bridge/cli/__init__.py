"""The command line: turns options into values, and values into words. Has no logic of its own."""
