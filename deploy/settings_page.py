"""docs/configuration.md, made from the settings themselves.

`python -m deploy.settings_page` writes it. Names, defaults and limits come from
`gateway/settings.py` and `gateway/topic_configs.py`; what a setting means comes from
`settings.toml`, or from the comment above it in the code.
"""

from __future__ import annotations

import tomllib
from dataclasses import Field
from pathlib import Path
from typing import Any

from ister.gateway import settings
from ister.gateway.settings import BY_NAME, TOPIC_DEFAULTS
from ister.gateway.topic_configs import TOPIC_CONFIGS

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "configuration.md"
_BY_ATTRIBUTE = {setting.name: name for name, setting in BY_NAME.items()}
_UNLIMITED = 2**31 - 1  # an upper end from here on is the width of the number, not a limit

_HEAD = """\
# Configuration

<!-- Made by `python -m deploy.settings_page`; edit deploy/settings.toml or the code instead. -->

Everything has a default: `ister serve` alone is a working broker. Settings come from three places,
and later ones win:

1. a TOML file, `ister serve --config ister.toml`:

    ```toml
    num.partitions = 3
    log.retention.ms = 86400000
    ister.cache.bytes = 134217728
    ```

2. the environment: `ISTER_` and the name in upper case, dots as underscores
   (`ISTER_NUM_PARTITIONS=3`; for names that begin with `ister.` once is enough:
   `ISTER_CACHE_BYTES`);
3. the command line: `--set num.partitions=3`, as often as needed, and the options of
   `ister serve` itself (`--listen`, `--advertise`).

A name that does not exist, a value that does not parse, two settings that do not go together: all
problems are listed at once, each with where the value came from, and the exit code is 2.
`ister config` prints every setting, its value and where it came from.
"""

_BROKER = """\

## Broker

| setting | default | allowed | meaning |
|---|---|---|---|
"""

_TOPIC = """\

## Topics

Set when a topic is created, or later with IncrementalAlterConfigs (any Kafka tool). They are seen
with DescribeConfigs.

| setting | default | change later | meaning |
|---|---|---|---|
"""

_IDLE = """\

### Without effect

Kafka settings that have no meaning here. They are checked, stored and reported, because tools set
them and compare; nothing follows from them.

"""


def meanings() -> dict[str, dict[str, str]]:
    """By `broker` and `topic`, then by name."""
    with (FOLDER / "settings.toml").open("rb") as file:
        return tomllib.load(file)


def page() -> str:
    broker, topic = {**_comments(), **meanings()["broker"]}, meanings()["topic"]
    rows = [
        _row(f"`{name}`", _value(setting.default), _allowed(setting), broker[name])
        for name, setting in BY_NAME.items()
    ]
    topic_rows = [
        _row(
            f"`{name}`", _topic_default(name), "no" if config.fixed else "yes", topic.get(name, "")
        )
        for name, config in TOPIC_CONFIGS.items()
        if config.effect
    ]
    idle = ", ".join(f"`{name}`" for name, config in TOPIC_CONFIGS.items() if not config.effect)
    return "".join([_HEAD, _BROKER, *rows, _TOPIC, *topic_rows, _IDLE, idle, ".\n"])


def _comments() -> dict[str, str]:
    """What stands above each broker setting in the code, by its public name."""
    lines = Path(settings.__file__).read_text().splitlines()
    found = {}
    comment: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("# "):
            comment.append(line[2:])
            continue
        attribute = line.partition(":")[0]
        if attribute in _BY_ATTRIBUTE:
            found[_BY_ATTRIBUTE[attribute]] = " ".join(comment)
        comment = []
    return found


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _topic_default(name: str) -> str:
    attribute = TOPIC_DEFAULTS.get(name)
    if attribute is None:
        return _value(TOPIC_CONFIGS[name].default)
    return f"the broker's `{_BY_ATTRIBUTE[attribute]}`"


def _value(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"`{default}`" if str(default) else "none"


def _allowed(setting: Field[Any]) -> str:
    limits = setting.metadata
    if isinstance(setting.default, bool):
        return "true, false"
    if isinstance(setting.default, int):
        if limits["high"] >= _UNLIMITED:
            return f"{limits['low']} or more"
        return f"{limits['low']} to {limits['high']}"
    return ", ".join(limits["allowed"])


if __name__ == "__main__":
    PAGE.write_text(page())
