import click


@click.command()
def call() -> None: ...
