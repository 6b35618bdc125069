"""Tests of the layers around an engine."""
