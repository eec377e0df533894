"""The steps. A step never imports today's tables: it says what they were then."""
