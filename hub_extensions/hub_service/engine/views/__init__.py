"""Views of the state, for people and for servers."""
