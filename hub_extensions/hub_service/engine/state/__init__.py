"""The state that the parts of the engine share, and the one way to change it."""
