"""The service's routes: who may call each, what it takes, what it gives. Decisions are the engine's, not made here."""
