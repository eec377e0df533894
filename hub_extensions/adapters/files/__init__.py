"""Files of this package and of administrators."""
