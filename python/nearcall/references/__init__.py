"""Objects that stay where they are while the other side of a connection calls them: references, given and received.

Clients and servers pass them alike. What differs between the two, such as who numbers the methods, is each side's
:class:`~nearcall.references.catalogue.Catalogue`.
"""
