"""A language model that chooses a skill for a text that no rule understands. Imported only if it is configured."""
