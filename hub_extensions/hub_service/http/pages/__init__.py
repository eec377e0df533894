"""The pages of the service for people: their own servers, and the admin's overview."""
