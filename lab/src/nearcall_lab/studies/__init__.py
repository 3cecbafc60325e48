"""Five published studies: their figures, their method as published, and the same questions asked properly."""
