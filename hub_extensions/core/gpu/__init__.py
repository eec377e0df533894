"""GPUs as values: devices, MIG profiles, and samples of their use."""
