"""A cluster, over the official library: one watch, read into values of ``core.cluster``."""
