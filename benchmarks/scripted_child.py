"""The engine process of `scripted_server.py`: the product's own, but for the scorers, which hold no model."""

from __future__ import annotations

from pathlib import Path

from assay_serving.engine_process.engine import main
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import Scorer
from scripted_engine import ScriptedScorer


def scripted(
    plans: tuple[ModelConfig, ...], workspace: Path | None = None
) -> tuple[dict[str, Scorer], dict[str, ModelConfig]]:
    """A plan's reference is "scripted" or "nothing"; its engine option `item_s` is the scorer's."""
    scorers: dict[str, Scorer] = {}
    plans_by_name = {plan.served_as or plan.reference: plan for plan in plans}
    for name, plan in plans_by_name.items():
        scorers[name] = ScriptedScorer(
            name, nothing=plan.reference == "nothing", item_s=plan.engine_options.get("item_s", 0.0)
        )
    return scorers, plans_by_name


if __name__ == "__main__":
    raise SystemExit(main(scripted))
