"""The hub's pages: the spawn form, the progress of a start, and the user's overview."""
