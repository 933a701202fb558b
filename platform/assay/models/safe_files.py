"""Checkpoints whose files could run code when they are opened: refused.

Covers: weights kept as Python pickles, code that a checkpoint brings along. Leaves out: loading (`loading`), which
never falls back to either.
"""

from pathlib import Path

from assay.errors import BadInputError

#: What `torch.load` opens. A pickle names functions that are called while it is read.
PICKLES = frozenset((".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"))
#: What trainers leave beside the weights; nothing here opens them.
_OF_TRAINERS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")


def check_weights(folder: Path) -> None:
    """Raises BadInputError where weights (or an adapter's) are there as pickles only."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    pickles = sorted(
        name for name in names if Path(name).suffix in PICKLES and not name.startswith((*_OF_TRAINERS, "adapter_"))
    )
    if any(name.startswith("adapter_model") for name in names) and "adapter_model.safetensors" not in names:
        pickles = [name for name in names if name.startswith("adapter_model")]
    elif any(name.endswith(".safetensors") and not name.startswith("adapter_") for name in names):
        return
    if pickles:
        raise pickle_error(pickles[0], folder)


def pickle_error(name: str, folder: Path) -> BadInputError:
    """Of weights in a pickle that is not opened, or that holds more than weights."""
    return BadInputError(
        f"has its weights in {name}, a Python pickle, which can run code when it is opened: save it again "
        "with save_pretrained, which writes safetensors",
        file=folder,
    )


def own_code_error(name: str) -> BadInputError:
    """Of a model that nobody can load without running code that it brings along."""
    return BadInputError(f"{name} brings code of its own (auto_map in its config), and that is never run here")
