"""Forward passes on fake tensors of a GPU, by a build of torch that has CUDA and a machine that needs none.

Covers: the product's passes with `cuda` tensors that have no memory, where mixed devices fail as on a GPU; reads of the
device by the product's line; floating-point operations by number format. Prints one JSON object. Leaves out: backward
passes, which such a build does not make without a GPU; numbers.

Run by `tests/system/repository/test_fake_cuda.py` with the interpreter that ASSAY_CUDA_TORCH_PYTHON names.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only
from torch.utils.flop_counter import flop_registry

from assay.domain import Message
from assay.models import config_only
from assay.models.config_only import ConfigOnly

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
#: Read as 0, as `assay.planning.fake_step` does; each is a read of the device.
READ = {aten._local_scalar_dense.default: 0, aten.equal.default: True}


class OnGpu(ConfigOnly):
    def build(self, kind: Any, config: Any, dtype: torch.dtype, num_labels: int | None = None) -> Any:
        with CUDA:
            return super().build(kind, config, dtype, num_labels)


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes what is asked for on the GPU a fake tensor, and notes what is read of it."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mode, self.reads, self.flops = mode, Counter[str](), Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        fakes = [each for each in tree_iter((args, kwargs)) if isinstance(each, FakeTensor)]
        on_gpu = any(each.device.type == "cuda" for each in fakes)
        to = kwargs.get("device")
        if on_gpu and func in READ:
            self._note()
            kind = args[0].dtype
            return False if kind == torch.bool else 0.0 if kind.is_floating_point else 0
        if on_gpu and func is aten._to_copy.default and to is not None and torch.device(to).type == "cpu":
            self._note()
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)  # a mask that is on
        if on_gpu and func is aten.nonzero.default:
            self._note()
            with self.mode:
                return torch.zeros(args[0].shape[0], args[0].ndim, dtype=torch.long, device=CUDA)
        if to is not None and torch.device(to).type == "cuda" and not fakes:
            real = tree_map_only(torch.Tensor, self.mode.from_tensor, (args, kwargs))
            with self.mode:
                return func(*real[0], **real[1])
        result = func(*args, **kwargs)
        if on_gpu and (count := flop_registry.get(func._overloadpacket)) is not None:
            self.flops[str(fakes[0].dtype).removeprefix("torch.")] += count(*args, **kwargs, out_val=result)
        return result

    def _note(self) -> None:
        places = [f for f in traceback.extract_stack() if "/assay_" in f.filename or "/platform/assay" in f.filename]
        self.reads[f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "torch"] += 1


def loaded() -> None:
    """What is counted begins here."""
    for each in torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        if isinstance(each, Device):
            each.reads.clear()
            each.flops.clear()


def on_fake_gpu(work: Callable[[], object]) -> dict[str, Any]:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    device = Device(mode)
    try:
        config_only._active[:] = [OnGpu(mode, "cuda")]
        with device:
            work()
    except Exception:
        return {"error": traceback.format_exc()}
    return {"reads": dict(device.reads), "flops": dict(device.flops)}


def rm_training(name: str, base: str) -> Callable[[], object]:
    """The forward passes of a step, bfloat16 products around float32 weights."""

    def work() -> None:
        from assay.models.chat.renderer import Renderer
        from assay.planning.request import PlanRequest
        from assay_rm_training.methods.method import method_of
        from assay_rm_training.plan import made_up
        from assay_rm_training.training_config import TrainingConfig

        method, config = method_of({"name": name}), TrainingConfig(base=base, dtype="bfloat16", batch_size=4)
        trainable = method.load(config, CUDA)
        renderer = Renderer(trainable.tokenizer, max_length=4096)
        rows = made_up(method, renderer, PlanRequest(prompt_tokens=20, response_tokens=20))
        task: Any = method.task(trainable, config)
        items = list(method.encode(rows, renderer).items)
        if name == "dpo":
            items = [item._replace(reference=(0.0, 0.0)) for item in items]
        loaded()
        measured = task.measure(trainable, items)
        assert measured.losses.device == CUDA

    return work


def policy(work: Callable[[Any], object]) -> Callable[[], object]:
    def run() -> None:
        from assay_policy_training.core.policy import Policy

        policy = Policy("tiny", device=CUDA, max_prompt_tokens=64, autocast=True)
        loaded()
        work(policy)

    return run


def prompts() -> list[Any]:
    from assay_policy_training.core.prompt import PromptItem

    return [PromptItem((Message("user", f"Hello {'there ' * n}"),)) for n in range(2)]


def log_probs(policy: Any) -> None:
    from assay_policy_training.plugins.samplers.assembly import assemble

    mask = torch.ones(6, 12, dtype=torch.bool)
    batch = assemble(policy, prompts(), 3, (mask.long() * 7, mask, torch.zeros(6, 12)), version=0)
    assert policy.scores(batch, temperature=1.0).logp.device == CUDA


def decoding(policy: Any) -> None:
    from assay_policy_training.core.sampling import Sampling
    from assay_policy_training.plugins.samplers.transformers import TransformersSampler

    sampling = Sampling(group_size=3, max_new_tokens=40, rows_at_once=6)
    TransformersSampler(policy, sampling).rollout(prompts(), 3, seed=1, version=0)


def scoring() -> None:
    """Packed, in bfloat16."""
    from assay.models.attention.packing import forward, group_of
    from assay.models.heads import HEAD, apply_head
    from assay.models.loading import load_scalar_model, load_tokenizer

    model: Any = load_scalar_model("tiny", load_tokenizer("tiny"), dtype=torch.bfloat16, device=CUDA, new_head=True)
    groups = [group_of([[1, 2, 3, 4], [1, 2, 5, 6, 7]]), group_of([[1, 2, 3]])]
    with torch.no_grad():
        assert apply_head(getattr(model, HEAD), forward(model, groups).last()).device == CUDA


def main() -> None:
    # What a machine without a GPU answers otherwise.
    torch._C._ensureCUDADeviceGuardSet()
    torch._C._set_only_lift_cpu_tensors(True)
    torch.cuda._lazy_init = lambda: None
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.mem_get_info = lambda *_: (2**34, 2**34)
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    paths = {
        "scoring": scoring,
        "bt": rm_training("bt", "tiny"),
        "dpo": rm_training("dpo", "tiny"),
        "principle": rm_training("principle", sys.argv[1]),
        "log-probs": policy(log_probs),
        "decoding": policy(decoding),
    }
    print(json.dumps({name: on_fake_gpu(work) for name, work in paths.items() if name in sys.argv[2:]}))


if __name__ == "__main__":
    main()
