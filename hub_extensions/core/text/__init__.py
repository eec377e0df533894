"""Texts: reasons with their sentences, translation and wording."""
