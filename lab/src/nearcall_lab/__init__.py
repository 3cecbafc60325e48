"""nearcall-lab: RPC mechanisms measured on identical work, with every reply verified."""

__version__ = "0.1.0"
