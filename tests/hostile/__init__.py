"""Hostile input: every parser that faces the network, fed with what no honest peer would send."""
