"""Settings: their dataclasses, their checks, and loading from files and overrides."""
