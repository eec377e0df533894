"""Offers of the spawn form, the choice of a user, and the requests of an offer to a pod."""
