"""The pages for people: what the bridge does and why, what waits for an answer, and a call to try."""
