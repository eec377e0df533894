"""The NVIDIA driver's library NVML."""
