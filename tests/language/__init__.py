"""What people write, and what it leads to."""
