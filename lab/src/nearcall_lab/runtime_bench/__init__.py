"""`nearcall-lab runtime`: nearcall measured against its own targets, together with the peers those targets name."""
