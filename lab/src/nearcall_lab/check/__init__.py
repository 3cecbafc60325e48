"""Whether an adapter keeps its promises."""
