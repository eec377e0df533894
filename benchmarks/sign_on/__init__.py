"""What ends where, and how fast, when a person is signed out: at a real Keycloak, a stock hub and ours side by side."""
