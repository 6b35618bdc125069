"""Assembles a bridge: plans as values, the parts made from a plan, and the bridge that runs the parts."""
