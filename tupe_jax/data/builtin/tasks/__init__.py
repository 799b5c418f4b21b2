"""Labelled tasks from the same grammar: acceptability, sentiment, paraphrase, NLI."""
