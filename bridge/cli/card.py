import click


@click.command()
def card() -> None: ...
