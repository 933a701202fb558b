"""The registered forms of published reward models, and which of them a checkpoint is of.

Leaves out: the declarations (a module a family), stock classifiers of one label, which need none.
"""

from pathlib import Path

from assay.errors import BadInputError, NotFoundError
from assay.models.adapters.adapter import ModelAdapter
from assay.models.adapters.checkpoint import CONFIG, PublishedCheckpoint, open_checkpoint
from assay.models.hub import hub_id
from assay.models.loading import HEAD_WEIGHTS
from assay.registry import Kind

_HERE = "assay.models.adapters"
MODEL_ADAPTERS: Kind[ModelAdapter] = Kind(
    "model_adapter",
    "Reads a published form of reward model: how it is recognised, how its weights map, what is read where.",
    {
        "armorm": f"{_HERE}.gated:ARMORM",
        "beaver": f"{_HERE}.value_heads:BEAVER",
        "encoder": f"{_HERE}.classifiers:ENCODER",
        "eurus": f"{_HERE}.value_heads:EURUS",
        "grm": f"{_HERE}.value_heads:GRM",
        "inf-orm": f"{_HERE}.value_heads:INF_ORM",
        "internlm2": f"{_HERE}.value_heads:INTERNLM2",
        "labelled": f"{_HERE}.classifiers:LABELLED",
        "math-shepherd": f"{_HERE}.process:MATH_SHEPHERD",
        "nemotron": f"{_HERE}.value_heads:NEMOTRON",
        "openrlhf": f"{_HERE}.value_heads:OPENRLHF",
        "pairrm": f"{_HERE}.pairs:PAIRRM",
        "peft": f"{_HERE}.classifiers:PEFT",
        "pickled": f"{_HERE}.classifiers:PICKLED",
        "nemotron-principle": f"{_HERE}.value_heads:NEMOTRON_PRINCIPLE",
        "qrm": f"{_HERE}.gated:QRM",
        "qrm-gemma": f"{_HERE}.gated:QRM_GEMMA",
        "qwen-math-prm": f"{_HERE}.process:QWEN_MATH_PRM",
        "qwen-math-rm": f"{_HERE}.value_heads:QWEN_MATH_RM",
        "skywork-o1-prm": f"{_HERE}.process:SKYWORK_O1_PRM",
        "skywork-vl": f"{_HERE}.value_heads:SKYWORK_VL",
        "starling": f"{_HERE}.value_heads:STARLING",
        "steamshp": f"{_HERE}.pairs:STEAMSHP",
        "trl-prm": f"{_HERE}.process:TRL_PRM",
        "ultrarm": f"{_HERE}.value_heads:ULTRARM",
        "urm": f"{_HERE}.gated:URM",
    },
    requires=("recognises", "check", "reads", "source"),
    option="adapter",
)


def adapter_of(name: str, chosen: str | None = None) -> tuple[str, ModelAdapter, PublishedCheckpoint] | None:
    """Name of the form, its adapter and the opened checkpoint of the model `name`; None for a stock decoder with one
    label or without a head, which needs none. `chosen`: the form's name where the caller says it.

    Raises BadInputError for a checkpoint that looks like a form and lacks a part of it, and what opening it raises.
    """
    if chosen is not None:
        adapter, checkpoint = MODEL_ADAPTERS.find(chosen), open_checkpoint(name)
        adapter.check(checkpoint, chosen)
        return MODEL_ADAPTERS.absolute(chosen), adapter, checkpoint
    from assay.models.adapters.classifiers import is_classifier

    if _is_stock_of_hub(name):
        return None
    checkpoint = open_checkpoint(name, weights=False)
    forms = [(member.name, MODEL_ADAPTERS.find(member.name)) for member in MODEL_ADAPTERS.entries()]
    alike = [form for form in forms if form[1].recognises(checkpoint)]
    if hub_id(name) is not None and not Path(name).expanduser().is_dir() and (alike or not checkpoint.shapes):
        checkpoint = open_checkpoint(name)
        alike = [form for form in forms if form[1].recognises(checkpoint)]
    if not alike:
        head = next((tensor for tensor in checkpoint.shapes if HEAD_WEIGHTS.match(tensor)), None)
        if head is not None and not is_classifier(checkpoint.config):
            raise BadInputError(
                f"{name} has weights of a reward head ({head}) in no form that is known here "
                f"({', '.join(sorted(checkpoint.classes)) or 'no class'}); name one: --adapter FORM or file.py:Name"
            )
        return None
    # A whole one before one that lacks a part; of several, the one that says most of the checkpoint.
    form, adapter = min(alike, key=lambda pair: (bool(pair[1].lacking(checkpoint)), -pair[1].detail(checkpoint)))
    adapter.check(checkpoint, form)
    return form, adapter, checkpoint


def _is_stock_of_hub(name: str) -> bool:
    """Whether a hub's model is a stock decoder with one label, so that its files need not be looked at here."""
    from assay.models.adapters.classifiers import is_plain
    from assay.models.loading import load_config

    if hub_id(name) is None or Path(name).expanduser().is_dir():
        return False
    try:
        config = load_config(name)
    except BadInputError:
        return False  # code of its own
    except NotFoundError as error:
        if "does not appear to have a file named config.json" in str(error):
            return False  # a PEFT adapter
        raise
    return is_plain(config.to_dict())


__all__ = ["CONFIG", "MODEL_ADAPTERS", "adapter_of"]
