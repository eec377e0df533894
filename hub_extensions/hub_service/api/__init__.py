"""The service's routes: who may call each, what it takes, what it gives. Decisions are the desk's, not made here."""
