"""``xalign assets``: weights and corpora that come inside Python packages."""

from __future__ import annotations

from typing import Annotated

import typer

from xalign_models.cli.common import Json, out, print_rows, split_list
from xalign_models.errors import AssetError

group = typer.Typer(help="Weights and corpora that come inside Python packages.", no_args_is_help=True)
AssetNames = Annotated[list[str] | None, typer.Argument(help="Names as in `xalign assets list`; all by default.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="assets")


@group.command("list")
def list_(json: Json = False) -> None:
    """List all assets, whether they are installed, and their licences."""
    from xalign_models import assets

    print_rows(
        [
            {
                "name": asset.name,
                "kind": asset.kind,
                "installed": "yes" if assets.where(asset.name) else "no",
                "licence": asset.licence,
                "description": asset.description,
            }
            for asset in assets.list_assets()
        ],
        json,
    )


@group.command()
def install(
    names: AssetNames = None,
    accept_license: Annotated[list[str] | None, typer.Option(help="Licence terms you accept, e.g. gemma.")] = None,
) -> None:
    """Download, check and convert; installed assets stay."""
    from xalign_models import assets

    accepted = split_list(accept_license)
    chosen = names or [
        a.name for a in assets.list_assets() if not a.needs_licence_flag or a.needs_licence_flag in accepted
    ]
    for name in chosen:
        path = assets.install(name, accept_license=accepted)
        out.print(f"{name}: {path}", highlight=False, soft_wrap=True)


@group.command()
def verify(names: AssetNames = None) -> None:
    """Compare every installed file with its hash at the time of installation."""
    from xalign_models import assets

    damaged = []
    for name in names or [asset.name for asset in assets.list_assets() if assets.where(asset.name)]:
        try:
            assets.verify(name)
            out.print(f"{name}: intact", highlight=False)
        except AssetError as error:
            damaged.append(str(error))
    if damaged:
        raise AssetError(" ".join(damaged))


@group.command()
def where(name: Annotated[str, typer.Argument(help="Name as in `xalign assets list`.")]) -> None:
    """Print where an asset is installed."""
    from xalign_models import assets

    path = assets.where(name)
    if path is None:
        raise AssetError(f"{name} is not installed; run `xalign assets install {name}`.")
    out.print(str(path), highlight=False, soft_wrap=True)
