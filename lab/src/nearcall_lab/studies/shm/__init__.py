"""The study of a shared-memory RPC library beside gRPC."""
