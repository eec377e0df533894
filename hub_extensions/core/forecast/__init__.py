"""The wait forecast: what finished uses teach, the simulation of the queue, and the interval that is shown."""
