"""The report of a study, in HTML."""
