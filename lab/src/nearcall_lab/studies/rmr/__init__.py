"""The study that asks whether gRPC can carry RMR's one-way messages."""
