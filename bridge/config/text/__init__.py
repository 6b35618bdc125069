"""A file as text: where its values stand and come from, what is wrong there, and what in it is secret."""
