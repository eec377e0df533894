"""The migrations. They never import the current tables, but define the tables as they were."""
