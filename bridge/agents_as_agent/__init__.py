"""Direction 3: an A2A agent made of remote A2A agents. Its tasks are theirs, under ids of its own."""
