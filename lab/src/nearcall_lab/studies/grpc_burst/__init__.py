"""The study of a Python gRPC framework beside Go, Java and Node."""
