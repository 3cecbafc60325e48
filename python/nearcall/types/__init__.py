"""Types and values as such: annotations read, described as plain data and compared, and values shown to people.

What codecs and services both need is here; nothing in it knows a codec, a service or a connection.
"""
