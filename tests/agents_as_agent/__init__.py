"""Agents made of remote agents."""
