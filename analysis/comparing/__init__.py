"""From results to paired scores, and from these to a verdict."""
