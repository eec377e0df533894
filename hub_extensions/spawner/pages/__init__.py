"""Content for the hub's pages: the spawn form, the waiting page of a start, and the state of a user's servers."""
