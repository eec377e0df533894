"""The wait forecast: the durations of finished uses, the simulation of the queue, and the interval that is shown."""
