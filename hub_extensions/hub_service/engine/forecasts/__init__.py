"""The forecasts of users' waits for a GPU: when they are computed, by which process, and how accurate they were."""
