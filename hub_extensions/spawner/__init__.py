"""RUNS in the hub: the spawners, the spawn form, the waiting page."""
