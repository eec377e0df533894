"""Views of the state: the messages that pages, servers' extensions and the API get."""
