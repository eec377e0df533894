"""Machines that can be simulated, one YAML file each: package data, read by ``adapters/simulated/gpus.py``."""
