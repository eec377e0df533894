"""The start of the service: settings, folder, addresses and port."""
