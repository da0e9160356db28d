"""`sweep tune`: a search per variant with equal budgets, frozen into a study file."""
