"""The service's pages: the user's own servers, and the administrators' overview."""
