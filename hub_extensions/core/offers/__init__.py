"""Offers of the spawn form, a user's choice, and what an offer requests for its pod."""
