"""Attacks on a bridge that runs, each with what it may cost, beside an honest caller who is served all the while."""
