"""gRPC servers and clients in other languages, which come with the lab as source and are built on request."""
