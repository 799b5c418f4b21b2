"""GLUE by the paper's protocol: the grid, its aggregation and its report."""
