"""What an admin sees of the whole: cards and who is on them, one line of figures, health, and the last days. Pure."""
