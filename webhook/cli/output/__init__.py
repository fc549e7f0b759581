"""The formats of a report: a module each, with one function ``show``."""
