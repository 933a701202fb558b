"""Naming and loading models: a folder, a hub id, or one of ours (`smollm2`, `tiny`, `tiny-vision`).

Covers: tokenizers with a pad token of their own, causal language models, scalar reward models whose head is kept
or is new by explicit wish and never by accident, the attention that a soft-capped model needs. Remote code is never
run. Leaves out: rendering, devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import BackendError, BadInputError, NotFoundError, nearest_names
from assay.models import config_only, embedded, tiny, tiny_vision, vision
from assay.models.hub import cached_alone
from assay.models.quiet import quiet_transformers
from assay.models.safe_files import check_weights, own_code_error
from assay.models.spec import FILE, RewardModelSpec, weights_digest

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

#: Models of ours, by name.
OWN = (embedded.NAME, tiny.NAME, tiny_vision.NAME)
OWN_PAD = "<|pad|>"
#: Weights of a reward or value head, whatever the configuration calls the model (TRL, OpenRLHF, Qwen's RewardModel).
HEAD_WEIGHTS = re.compile(r"(score|v_head|(value|reward|rm|regression|classification)_(head|layer)|classifier)\.")


def resolve_model(name: str) -> str:
    """What to give transformers for `name`: a folder or a hub id. Raises NotFoundError for neither."""
    if name == embedded.NAME:
        return str(embedded.embedded_model())
    if name == tiny.NAME:
        return str(tiny.tiny_model())
    if name == tiny_vision.NAME:
        return str(tiny_vision.tiny_vision_model())
    path = Path(name).expanduser()
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise NotFoundError(f"{path} holds no model: config.json is missing")
        return str(path.resolve())
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return name  # a hub id; loading says whether it exists
    own = f"{', '.join(OWN)}{nearest_names(name, OWN)}"
    raise NotFoundError(f"no model {name!r}: not a folder, not a hub id (owner/name), not one of {own}")


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer, with a pad token that is not its end token.

    Where pad = eos, a stock sequence classifier takes the wrong token as the last; a special token the template
    never uses becomes the pad token, else a new one (then `len(tokenizer)` may exceed the model's embeddings,
    and the loaders below grow them).
    """
    from transformers import AutoTokenizer

    source = resolve_model(name)
    if config_only.active() and Path(source).is_dir() and not any(Path(source).glob("tokenizer*")):
        source = resolve_model(embedded.NAME)  # any will do where only sizes are asked for
    tokenizer = _load(AutoTokenizer.from_pretrained, source, name)
    if name in OWN:
        tokenizer.name_or_path = name  # messages name it, and not the folder that it is kept in
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        template = str(tokenizer.chat_template or "")
        spare = [
            token
            for token in tokenizer.all_special_tokens
            if token not in template
            and token not in (tokenizer.eos_token, tokenizer.bos_token)
            and not re.search("image|vision|video", token)  # what a processor writes
        ]
        if spare:
            tokenizer.pad_token = spare[0]
        else:
            tokenizer.add_special_tokens({"pad_token": OWN_PAD})
    return tokenizer  # type: ignore[no-any-return]


def load_processor(name: str) -> Any:
    """The model's processor of images and texts, without its part for videos where that lacks its library. Raises
    BackendError where it, or what it needs, is not there."""
    from transformers import AutoProcessor

    kind = None if find_spec("torchvision") else vision.processor_without_videos(load_config(name))
    try:
        return _load((kind or AutoProcessor).from_pretrained, resolve_model(name), name)
    except ImportError as error:
        lacks = " ".join(str(error).split())[:200]
        raise BackendError(f"the image processor of {name} needs a library that is not here: {lacks}") from error


def load_config(name: str) -> PretrainedConfig:
    """The model's configuration. Raises NotFoundError for an unknown model."""
    from transformers import AutoConfig

    source = resolve_model(name)
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise BadInputError(f"{name} is a PEFT adapter and no whole model; merge it into its base first")
    return _load(AutoConfig.from_pretrained, source, name)  # type: ignore[no-any-return]


def has_reward_head(base: str) -> bool:
    """Whether `base` already is a sequence classifier. Raises NotFoundError for an unknown model."""
    return any("SequenceClassification" in kind for kind in (load_config(base).architectures or []))


def load_causal_lm(
    name: str, tokenizer: PreTrainedTokenizerBase, *, dtype: torch.dtype, device: torch.device
) -> PreTrainedModel:
    """A language model in eval mode. Raises BadInputError for a reward model, whose language head would be random, and
    for a checkpoint without all of the model's weights."""
    if has_reward_head(name):
        raise BadInputError(f"{name} is a reward model, not a language model that can be a policy")
    config = load_config(name)
    model, info = _with_weights(vision.writer_for(config), name, config, dtype)
    _require_all(name, info["missing_keys"])
    check_vocabulary(name, tokenizer, model)
    return fit(model, tokenizer, device)


def load_scalar_model(
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    *,
    dtype: torch.dtype,
    device: torch.device,
    new_head: bool = False,
    seed: int = 0,
    labels: int = 1,
) -> PreTrainedModel:
    """A sequence classifier with one label, in eval mode; `labels`: of a model that keeps one output a rating.

    `new_head=True` puts a fresh head (drawn from `seed`) on a language model; on a checkpoint that already has a
    scalar head, by its architecture or by its weights, that is refused, as is loading one without a head when
    `new_head=False`: a silently random head is the field's most repeated defect. Raises BadInputError for both, and for
    a checkpoint without all of its model's weights.
    """
    import torch

    config = load_config(name)
    has_head = has_reward_head(name)
    if has_head and new_head:
        raise BadInputError(f"{name} already is a reward model; continue from it with its own head, or name its base")
    if not has_head and not new_head:
        raise BadInputError(f"{name} is a language model without a reward head; train one with: assay train bt")
    if has_head and config.num_labels != labels:
        expected = "a scalar reward model has one" if labels == 1 else f"its description says {labels}"
        raise BadInputError(f"{name} has {config.num_labels} labels; {expected}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, info = _with_weights(
            vision.classifier_for(config),
            name,
            config,
            dtype,
            num_labels=labels,
            new=() if has_head else ("score.weight",),
        )
    missing = set(info["missing_keys"])
    body = f"{model.base_model_prefix}."  # what pools for a head is as new as the head
    _require_all(name, (key for key in missing if has_head or (key.startswith(body) and "pooler" not in key)))
    heads = sorted(weight for weight in info["unexpected_keys"] if HEAD_WEIGHTS.match(weight))
    if not missing:
        heads.append("score.weight")  # read, since it is called as a stock classifier's
    if new_head and heads:
        raise BadInputError(
            f"{name} has a head of its own ({heads[0]}), which a new one would replace, though its configuration "
            f"names a {' and '.join(config.architectures or ['language model'])}; save it as a sequence classifier "
            "with one label, or name its base"
        )
    check_vocabulary(name, tokenizer, model)
    # Serving engines answer sigmoid(logit) for one label unless the config says regression.
    model.config.problem_type = "regression"
    return fit(model, tokenizer, device)


def _with_weights(
    kind: Any, name: str, config: Any, dtype: torch.dtype, *, new: Iterable[str] = (), **options: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """A model of the class `kind`, and what its checkpoint lacks and has too much. While a plan is made (`config_only`)
    without any weights; `new`: those that the checkpoint would lack."""
    from assay.models import unread_weights  # with torch, which front processes do without

    if (planned := config_only.active()) is not None:
        return planned.build(kind, config, dtype, **options), {"missing_keys": [*new], "unexpected_keys": []}
    if unread_weights.reads_later() and Path(source := resolve_model(name)).is_dir():
        check_weights(Path(source))
        with quiet_transformers():
            if (built := unread_weights.build(kind, source, config, dtype, **options)) is not None:
                return built
    load, settings = kind.from_pretrained, {"dtype": dtype, "use_safetensors": True, **options}
    return _load(load, resolve_model(name), name, **settings, output_loading_info=True)  # type: ignore[no-any-return]


def context_length(config: Any) -> int:
    """Tokens that a model of this config reads at most; 4096 where the config does not say."""
    nested = getattr(config, "text_config", None)
    limits = (getattr(part, "max_position_embeddings", None) for part in (config, nested))
    return next((int(limit) for limit in limits if limit), 4096)


def stored_spec(name: str) -> RewardModelSpec | None:
    """The spec in the checkpoint's folder, None for a checkpoint from elsewhere. To be called before anything in its
    files is run, its chat template included.

    Raises BadInputError where the files are not those the spec was written for: its scores would carry a version
    that did not make them.
    """
    folder = Path(resolve_model(name))
    spec = RewardModelSpec.read(folder) if folder.is_dir() else None
    if spec is not None and (digest := weights_digest(folder)) != spec.version:
        raise BadInputError(
            f"{name} is not the checkpoint that its {FILE} describes: files of version {digest}, not {spec.version}"
        )
    return spec


def spec_of(name: str, *, template_hash: Callable[[], str], max_length: int | None = None) -> RewardModelSpec:
    """The checkpoint's spec; for one from elsewhere, a spec made from its config (uncalibrated, parity unchecked).

    `template_hash`: called for the latter only. Raises what `stored_spec` raises.
    """
    if (spec := stored_spec(name)) is not None:
        return spec
    folder = Path(resolve_model(name))
    config = load_config(name)
    limit = context_length(config)
    version = weights_digest(folder) if folder.is_dir() else str(getattr(config, "_commit_hash", None) or "unknown")
    return RewardModelSpec(
        kind="scalar",
        base=name,
        template_hash=template_hash(),
        trained_length=min(limit, max_length or limit),
        version=version,
    )


def is_soft_capped(config: Any) -> bool:
    """True for models that cap attention logits (Gemma 2), as nested text configurations may too."""
    return any(
        getattr(part, "attn_logit_softcapping", None) is not None
        for part in (config, getattr(config, "text_config", None))
    )


def check_vocabulary(name: str, tokenizer: Any, model: Any) -> None:
    """Raises BadInputError where the tokenizer has tokens that the model does not know, beyond a pad token of ours."""
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows + 1:
        raise BadInputError(f"{name}: its tokenizer has {len(tokenizer)} tokens and its model {rows}: of another model")


def fit(model: Any, tokenizer: PreTrainedTokenizerBase, device: torch.device) -> PreTrainedModel:
    """Agree with the tokenizer on the pad token and the vocabulary; attention with the cap it has; move, except
    where weights are read later; eval mode."""
    from assay.models import unread_weights

    if is_soft_capped(model.config):
        model.set_attn_implementation("eager")  # fused kernels leave the cap out
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        unread_weights.read_weights(*filter(None, (model.get_input_embeddings(), model.get_output_embeddings())))
        model.resize_token_embeddings(len(tokenizer))
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.eval()
    return model if model.device == device or unread_weights.reads_later() else model.to(device)  # type: ignore[no-any-return]


def _require_all(name: str, missing: Iterable[str]) -> None:
    if lacking := sorted(missing):
        raise BadInputError(f"{name} lacks weights, which would be random: {', '.join(lacking[:3])}")


def _load(loader: Any, source: str, name: str, **options: Any) -> Any:
    """Call a from_pretrained quietly; turn its many errors into one line."""
    from huggingface_hub import is_offline_mode
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    if not Path(source).is_dir():
        source = cached_alone(source) or source
    if options.get("use_safetensors") and Path(source).is_dir():
        check_weights(Path(source))
    try:
        with quiet_transformers():
            return loader(source, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        if "trust_remote_code" in str(error):
            raise own_code_error(name) from error
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if Path(source).is_dir():
            raise BackendError(f"cannot load {name}: {line}") from error
        offline = " (HF_HUB_OFFLINE is set)" if is_offline_mode() else ""
        raise NotFoundError(f"cannot get {name} from the model hub{offline}: {line}") from error
