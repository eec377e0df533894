"""NVIDIA's library. `reader.Nvml` reads a whole machine's GPUs, or those of one server."""
