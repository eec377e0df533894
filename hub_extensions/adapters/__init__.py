"""TALKS. One folder for each outside system: it converts its data to and from values, and decides nothing."""
