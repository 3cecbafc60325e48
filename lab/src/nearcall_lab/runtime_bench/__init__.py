"""`nearcall-lab runtime`: nearcall measured against its own targets, beside the peers those targets name."""
