"""The processes of a measurement: a server and a client per launch, and the parent's handle on them."""
