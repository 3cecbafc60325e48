"""References, given and received: objects that stay in their process while the other side of a connection calls them.

Clients and servers pass them alike. The differences, such as which side numbers the methods, are in each side's
:class:`~nearcall.references.catalogue.Catalogue`.
"""
