"""GPUs that do not exist, from layout files: for trying things out, and it says so wherever they are shown."""
