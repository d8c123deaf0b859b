"""``xalign serve``."""

import ipaddress
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xalign_models.cli.common import say
from xalign_models.cli.options import Device
from xalign_models.errors import ModelError

TOKEN = "XALIGN_SERVE_TOKEN"
"""Variable with the bearer token of requests; a command line would show it to other users."""


def serve(
    model: Annotated[str, Argument(help="Name, directory, hub id, openai:MODEL@URL, or ready map.")],
    host: Annotated[
        str, Option(help="Address to listen on; one that other machines can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 is any free one.")] = 8080,
    name: Annotated[str | None, Option(help="Name of the model in requests; by default its own.")] = None,
    thresholds: Annotated[Path | None, Option(help="File that Thresholds.save wrote, for /v1/scores.")] = None,
    device: Device = None,
) -> None:
    """Serve a model with OpenAI's embeddings protocol.

    XALIGN_SERVE_TOKEN is the bearer token of requests.
    """
    import uvicorn

    token = os.environ.get(TOKEN, "").strip() or None
    if token is None and not _is_loopback(host):
        raise ModelError(
            f"--host {host} is reachable from other machines; set {TOKEN} to a secret that requests must send."
        )
    from xalign_models.models.building import load
    from xalign_models.serving.app import Server
    from xalign_models.thresholds import Thresholds

    loaded = load(model, device=device)
    table = Thresholds.load(thresholds) if thresholds else None
    server = Server(loaded, name or Path(model).name, token, table)
    settings = uvicorn.Config(server.app(), log_level="warning", access_log=False, server_header=False)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ModelError(f"Cannot listen on {host}, port {port}: {error.strerror or error}; choose another.") from None
    with listening, suppress(KeyboardInterrupt):
        shown = f"[{host}]" if ":" in host else host
        say(f"{server.name}: http://{shown}:{listening.getsockname()[1]}/v1")
        uvicorn.Server(settings).run(sockets=[listening])


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
