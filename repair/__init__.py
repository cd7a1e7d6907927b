"""The truth, its projections, and mending them: pure decisions inside, a thin shell around."""
