"""Simulated GPUs from layout files, for trials. They are marked as simulated wherever they are shown."""
