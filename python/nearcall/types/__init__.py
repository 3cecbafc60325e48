"""Types and values: reads annotations, describes and compares them as plain data, and shows values to people.

Codecs and services both need this; nothing in it uses a codec, a service or a connection.
"""
