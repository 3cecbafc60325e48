"""Whether an adapter keeps its promises. Nothing it measures appears anywhere before it does."""
