"""What the README's figures come from. Not tests: see README.md here."""
