"""Usage records (who held which GPU, how long, and how busy it was), and notices to users."""
