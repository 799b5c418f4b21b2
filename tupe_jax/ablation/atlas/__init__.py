"""One page about all archived studies."""
