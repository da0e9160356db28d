"""Pure functions on arrays: no study, no store, no words."""
