"""Services: reads a class into plans of its methods, describes it to the other side, and compares it with the other
side's.

Everything in it is known before any connection exists; clients and servers work from the plans it makes.
"""
