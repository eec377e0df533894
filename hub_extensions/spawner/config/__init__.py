"""The spawner's settings: the traits, how sections of a configuration file reach them, and the classes they are for."""
