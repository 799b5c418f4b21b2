"""A run's work directory, how it resumes, and how it stops."""
