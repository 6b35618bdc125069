"""What the tables of a configuration file become in a plan."""
