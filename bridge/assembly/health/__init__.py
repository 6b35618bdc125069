"""What a bridge and its machine lack, each with the command that mends it."""
