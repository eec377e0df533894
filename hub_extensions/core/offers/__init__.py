"""Offers (the lines of the spawn form among which a user chooses), the user's choice, and the requests of a pod."""
