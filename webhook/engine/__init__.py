"""The engine: compiles and indexes policies, and decides requests with one pure function."""
