"""What the service is started with: settings, folder, addresses and port."""
