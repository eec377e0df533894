"""What the panel costs its server, beside no panel and beside the two known ones. Not a test: see ../README.md."""
