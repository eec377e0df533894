"""Texts: reasons with their sentences for each audience, translation and wording. Pure."""
