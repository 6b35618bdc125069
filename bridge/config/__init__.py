"""What a user chooses, read and checked before anything starts."""
