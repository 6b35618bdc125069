"""The life of tasks: taken in, run, stored, watched. Knows no wire."""
