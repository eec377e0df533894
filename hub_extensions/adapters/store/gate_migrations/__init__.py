"""The steps of the gate's tables, which are in a database of its own or beside others."""
