"""Runs in the hub: the spawners, the spawn form, and the waiting page."""
