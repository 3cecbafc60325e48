"""gRPC servers under h2load: one connection, many streams, the same typed call at each."""
