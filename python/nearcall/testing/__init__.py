"""For tests: services in memory, and connections with faults.

::

    from nearcall.testing import faulty, serving

    with serving(Calculator()) as calc:              # a server, a client, nothing to name, nothing to clean up
        assert calc.add(1, 2) == 3

    with faulty(Calculator()) as (calc, proxy):      # the same, with a proxy in between that does harm when told to
        proxy.drop("reply")
        with nearcall.timeout(0.1), pytest.raises(nearcall.DeadlineExceeded):
            calc.add(1, 2)
        assert proxy.dropped == 1

``import nearcall`` does not import this package.
"""

from .faults import Fault
from .frames import Frame, Kind
from .proxy import FaultyProxy
from .serving import Faulty, Serving, faulty, serving

__all__ = ["Fault", "Faulty", "FaultyProxy", "Frame", "Kind", "Serving", "faulty", "serving"]
