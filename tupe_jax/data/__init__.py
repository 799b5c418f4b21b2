"""From any text to deterministic token rows."""
