"""The service's routes: their callers and messages. The engine decides."""
