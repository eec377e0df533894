"""What the GPU service needs at its start: settings, state folder, addresses and port."""
