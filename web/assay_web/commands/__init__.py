"""Sub-commands of this package. Heavy imports happen inside the commands."""

import typer

from assay_web.commands import accounts
from assay_web.commands.demo import demo, report
from assay_web.commands.up import up
from assay_web.commands.web import web


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)
    app.command("report")(report)
    app.command("web")(web)
    app.command("up")(up)
    accounts.register(app)
