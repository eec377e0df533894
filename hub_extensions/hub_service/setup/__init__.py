"""Values for the start of the GPU service: settings, state folder, addresses and port."""
