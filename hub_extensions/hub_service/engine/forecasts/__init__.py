"""The wait forecasts in the service: when they are computed, by which process, and how accurate they were."""
