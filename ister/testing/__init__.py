"""A real broker inside a test: `with Broker() as broker: ... broker.bootstrap ...`.

`broker.py` runs it, `machine.py` is what survives its crashes, `faults.py` has the
knobs. `container.py` is the same as a container. The pytest fixture is in `ister.pytest_plugin`.
"""

from ister.testing.broker import Broker, BrokerError
from ister.testing.container import IsterContainer
from ister.testing.faults import Faults

__all__ = ["Broker", "BrokerError", "Faults", "IsterContainer"]
