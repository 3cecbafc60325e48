"""The study behind a screen reader's add-on runtime: gRPC, Pyro4, RPyC and ZeroMQ."""
