"""Lets the environments of tox.ini share one virtual environment.

tox throws a virtual environment away when it finds one made under another name,
which would install everything again for each of lint, types, unit and so on. The
runner here writes its own name over the last one before tox looks, and sets up
once per run. It holds only for environments with the same settings, one after
another. It uses tox's insides, so tox.ini says which tox; a run with another one
fetches that one first.
"""

from __future__ import annotations

from pathlib import Path

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.python.virtual_env.runner import VirtualEnvRunner
from tox.tox_env.register import ToxEnvRegister


class SharedRunner(VirtualEnvRunner):
    """A virtual environment that belongs to whoever runs in it now."""

    ready: set[Path] = set()  # noqa: RUF012 - one for all runners of this process

    @staticmethod
    def id() -> str:
        return "shared"

    def setup(self) -> None:
        if self.env_dir in self.ready:
            self._paths = self.prepend_env_var_path()
            return
        super().setup()
        self.ready.add(self.env_dir)

    def _setup_env(self) -> None:
        name = {"name": self.conf.name, "type": type(self).__name__}
        if self.env_dir.exists():
            with self.cache.compare(name, ToxEnv.__name__):
                pass  # leaving the block writes the name
        super()._setup_env()


@impl
def tox_register_tox_env(register: ToxEnvRegister) -> None:
    register.add_run_env(SharedRunner)
