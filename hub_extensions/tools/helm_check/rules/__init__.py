"""The rules of ``helm check``, by the part of the values that they read."""
