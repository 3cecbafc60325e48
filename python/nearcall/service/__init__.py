"""What a service is: a class read into plans of its methods, described to others, and compared with what they have.

Everything in it is known before any connection exists; clients and servers work from the plans it makes.
"""
