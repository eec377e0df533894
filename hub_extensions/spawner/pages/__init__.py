"""What a user sees of the hub: the spawn form, and the progress of a start."""
