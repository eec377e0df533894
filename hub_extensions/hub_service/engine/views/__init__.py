"""What the service shows of its state."""
