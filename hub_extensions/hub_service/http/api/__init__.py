"""The service's HTTP routes: who may call each, and the messages that it takes and returns. The engine decides."""
