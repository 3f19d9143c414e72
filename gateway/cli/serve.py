"""`ister serve`: run a broker until a signal comes."""

from __future__ import annotations

from typing import Annotated

import typer

from ister.gateway.cli import exits

FAILED_EXIT_AFTER_S = 5.0  # the disk failed: probes and people get this long to see why


def serve(
    data: Annotated[str, typer.Option(help="Data directory.")] = "./ister-data",
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]HOST:PORT",
            help="Where to listen; may be repeated. Port 0 is a free port. [127.0.0.1:9092]",
        ),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]HOST:PORT",
            help="The address that clients are told, by the listener's name; may be repeated.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off",
            help="Probes, metrics and the console. Port 0 is a free port. [127.0.0.1:9644]",
        ),
    ] = None,
    bucket: Annotated[
        str | None, typer.Option(help="Where the archive goes; a directory under DATA if not set.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; more than 1 is not there yet.")] = 1,
    continue_past_damage: Annotated[
        bool, typer.Option(help="Go on past damaged data; what is lost becomes a known hole.")
    ] = False,
    config: Annotated[str | None, typer.Option(metavar="FILE.toml", help="Settings.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; may be repeated."),
    ] = None,
) -> None:
    """Run the broker."""
    from ister.gateway.serve import Arguments, run

    arguments = Arguments(
        data=data,
        bucket=bucket,
        listen=listen or [],
        advertise=advertise or [],
        http=http,
        workers=workers,
        continue_past_damage=continue_past_damage,
        config=config,
        assignments=assignments or [],
    )
    raise typer.Exit(exits.guard(lambda: run(arguments)))
