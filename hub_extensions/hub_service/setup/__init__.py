"""What the service is started with: settings, its folder, its addresses, its logs."""
