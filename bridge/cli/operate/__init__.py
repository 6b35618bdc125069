"""The commands for those who run a bridge: who may call it, and what it lacks."""
