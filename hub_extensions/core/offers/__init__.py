"""What the spawn form offers, what a user chose, and what a pod asks for."""
