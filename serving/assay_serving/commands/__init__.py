"""Sub-commands of `assay` for serving. Heavy imports happen inside the commands."""

import typer

from assay_serving.commands import admin, chat, compose, keys, score, serve


def register(app: typer.Typer) -> None:
    app.command("serve")(serve.serve)
    app.command("serve-chat")(chat.serve_chat)
    app.command("score")(score.score)
    app.command("compose")(compose.compose)
    keys.register(app)
    admin.register(app)
