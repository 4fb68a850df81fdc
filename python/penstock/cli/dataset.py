"""penstock dataset: lists of training samples."""

from __future__ import annotations

import json

import click

from penstock import progress
from penstock.error import Error


@click.group()
def dataset() -> None:
    """Lists of training samples.

    \b
    Example:
      penstock dataset index --label-folders --ext .jpg --out train.index train/
    """


@dataset.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The index to write.")
@click.option("--label-folders", is_flag=True, help="The label of a file is the number of its folder, in sorted order.")
@click.option("--ext", "extensions", multiple=True, metavar="EXT", help="Only files that end so. Repeatable.")
@click.option("--field", metavar="EXT", help="Tar files: a sample is the file with this extension, such as jpg.")
@click.option(
    "--label-field", metavar="EXT", help="Tar files: the label is the integer in the file with this extension."
)
@click.option("--storage-options", metavar="JSON", help="Of fsspec, for URLs, such as '{\"anon\": true}'.")
@click.option("--quiet", is_flag=True, help="Show no progress on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and show no progress.")
def index(
    inputs: tuple[str, ...],
    out: str,
    label_folders: bool,
    extensions: tuple[str, ...],
    field: str | None,
    label_field: str | None,
    storage_options: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Save the list of the samples in INPUTS, which Dataset.from_index opens at once.

    INPUTS are files and folders (all files below them), or shards that end in .tar, .tfrecord or .tfrecords; also URLs.
    Paths below the folder of the index are kept relative to it.

    --json prints {"kind","samples","sample_bytes","labels","digest"}.

    \b
    Example:
      penstock dataset index --field jpg --label-field cls --out train.index shards/*.tar
    """
    from penstock.dataset import build_index

    options = None
    if storage_options is not None:
        try:
            options = json.loads(storage_options)
        except ValueError as error:
            raise click.BadParameter(f"{error}", param_hint="--storage-options") from None
        if not isinstance(options, dict):
            raise Error(f"--storage-options is {storage_options}; expected a JSON object")
    with progress.bar(f"index {out}", shown=not (quiet or as_json)) as advance:
        made = build_index(
            inputs,
            out,
            label_folders=label_folders,
            extensions=extensions,
            field=field,
            label_field=label_field,
            storage_options=options,
            progress=advance,
        )
    if as_json:
        click.echo(json.dumps(made._asdict()))
    else:
        click.echo(
            f"{out}: {made.samples:,} samples ({made.kind}), {made.sample_bytes:,} bytes, {made.labels:,} labels, "
            f"digest {made.digest}"
        )
