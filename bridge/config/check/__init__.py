"""What one key means for another, and what is refused, in the words of the file. Looks at plain values."""
