"""The hub's side of the GPU service, and the signed requests between them."""
