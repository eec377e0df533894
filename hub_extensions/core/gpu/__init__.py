"""GPUs as values: devices, MIG profiles, and samples (measurements) of how busy the devices are."""
