"""The hub's client of the GPU service, and the signed requests between them."""
