"""A real broker inside a test: `with Broker() as broker: ... broker.bootstrap ...`.

`broker.py` runs it, `machine.py` is what survives its crashes, `faults.py` has the
knobs. The pytest fixture is in `ister.pytest_plugin`.
"""

from ister.testing.broker import Broker, BrokerError
from ister.testing.faults import Faults

__all__ = ["Broker", "BrokerError", "Faults"]
