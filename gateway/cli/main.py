"""The tree of commands. Each group lives in its own module and is only named here.

Those modules import nothing heavy at their top: the log, the bucket and the wire come in
inside the command that uses them, so that `ister --help` stays quick.
"""

from __future__ import annotations

import typer

import ister
from ister.gateway.cli import (
    archive,
    config,
    consume,
    doctor,
    group,
    log,
    produce,
    receipts,
    serve,
    topic,
)

app = typer.Typer(
    help="Ister: a Kafka broker that you install with pip.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help; loading rich takes half a second
    pretty_exceptions_enable=False,  # a traceback in a report should be Python's own
)
app.command("serve")(serve.serve)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("config")(config.config)
app.command("doctor")(doctor.doctor)
app.command("receipts")(receipts.receipts)
app.add_typer(log.app, name="log")
app.add_typer(archive.app, name="archive")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ister {ister.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Ister: a Kafka broker that you install with pip."""
