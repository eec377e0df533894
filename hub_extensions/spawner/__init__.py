"""The part that runs in the hub's process: the spawners, the spawn form, and the page of a server that is starting."""
