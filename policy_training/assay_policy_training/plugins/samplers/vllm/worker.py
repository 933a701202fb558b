"""What a vLLM worker must know to take a policy's new weights from memory: loaded into vLLM's own processes by
`--worker-extension-cls`, so it imports nothing of Assay, and of vLLM only inside a call.

Covers: whole weights, of which a layer is processed as soon as it is complete, or the tensors of one adapter; given in
this process, in a file (of shared memory) that is mapped, or in another process's GPU memory (CUDA IPC).

Why vLLM's own reload is not enough on a CPU: where input and output embeddings are tied, vLLM multiplies by a packed
copy of the vocabulary head that a reload does not make again. Nothing fails; the head is that of the weights it started
with. Seen with vLLM 0.32.
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

ADAPTER = 1  #: the adapter's number; a server gives the first one that it is told of the same
RELOADING = "vllm.model_executor.model_loader.reload"


class PolicyWorker:
    """Mixed into vLLM's worker, whose `model_runner` it uses. `begin_policy`, any number of `take_*`, `end_policy`."""

    def begin_policy(self, adapter: Mapping[str, Any] | None = None) -> None:
        """`adapter`: its configuration, where its tensors are what is taken; None: the model's own weights."""
        worker: Any = self
        worker.policy = None
        worker.policy_adapter, worker.policy_tensors, worker.policy_names = adapter, {}, set()
        if adapter is None:
            import_module(RELOADING).initialize_layerwise_reload(worker.model_runner.get_model())

    def take_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Tensors that stay as they are until `end_policy`."""
        worker: Any = self
        if worker.policy_adapter is not None:
            # vLLM scales an adapter's tensors in place: without a copy those under training would be scaled too.
            worker.policy_tensors |= {name: values.detach().to("cpu", copy=True) for name, values in weights}
        else:
            worker.policy_names |= worker.model_runner.get_model().load_weights(weights) or set()

    def take_bucket(
        self, entries: Sequence[tuple[str, str, Sequence[int], int]], size: int, location: Mapping[str, Any]
    ) -> None:
        """Tensors that lie one after the other in `size` bytes: name, dtype, shape and first byte of each.

        `location`: the file that has them, or the GPU memory, which is written to again after this call.
        """
        if (path := location.get("path")) is not None:
            packed = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)  # outlives its directory entry
        else:
            mapped = self._mapped(location)
            packed = mapped[:size].clone()
            torch.cuda.synchronize(mapped.device)  # the copy is made before the trainer is told that it is
        self.take_weights([(name, _unpacked(packed, dtype, shape, first)) for name, dtype, shape, first in entries])

    def end_policy(self, key: str) -> dict[str, Any]:
        """`key`: of these weights. `missing`: the model's weights that were not given."""
        worker: Any = self
        worker.policy_mapping = None
        if worker.policy_adapter is not None:
            self._set_adapter(worker.policy_adapter, worker.policy_tensors)
            missing: set[str] = set()
        else:
            model = worker.model_runner.get_model()
            import_module(RELOADING).finalize_layerwise_reload(model, worker.model_runner.model_config)
            head = self.rebuild_head(model)
            missing = {name for name, _ in model.named_parameters()} - worker.policy_names - head
            worker.model_runner.reset_lora_state()
        worker.policy, worker.policy_tensors, worker.policy_names = key, {}, set()
        return {"missing": sorted(missing)}

    def policy_key(self) -> str | None:
        """Of the weights that it took last; None in a worker that was started since."""
        return getattr(self, "policy", None)

    def rebuild_head(self, model: Any) -> set[str]:
        """Pack a tied head again, where one is packed. The names of its weights where it is tied."""
        head: Any = getattr(model, "lm_head", None)
        embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
        if not getattr(getattr(model, "config", None), "tie_word_embeddings", False) or embedding is None:
            return set()
        if hasattr(head, "cpu_linear"):
            head.weight = embedding.weight
            utils = import_module("vllm.model_executor.layers.utils")
            utils.dispatch_cpu_unquantized_gemm(head, remove_weight=False)
        return {"lm_head.weight"}

    def _set_adapter(self, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """As vLLM does with an adapter's folder (`WorkerLoRAManager.add_adapter`), and verl with tensors."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        manager, lora_config = runner.lora_manager._adapter_manager, runner.lora_config
        helper = import_module("vllm.lora.peft_helper").PEFTHelper.from_dict(dict(config))
        helper.validate_legal(lora_config)
        mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
        adapter = import_module("vllm.lora.lora_model").LoRAModel.from_lora_tensors(
            ADAPTER,
            dict(tensors),
            helper,
            device="cpu",
            dtype=lora_config.lora_dtype,
            weights_mapper=mapper if mapper is None else mapper.get_rename_mapper(),
        )
        manager.remove_adapter(ADAPTER)
        manager.add_adapter(adapter)
        manager.activate_adapter(ADAPTER)

    def _mapped(self, location: Mapping[str, Any]) -> torch.Tensor:
        """The whole of another process's buffer. It is opened once for all buckets of one export: torch counts how
        often a buffer is opened and closed."""
        worker: Any = self
        before = getattr(worker, "policy_mapping", None)
        if before is None or before[0] != location:
            device = worker.device.index
            if str(torch.cuda.get_device_properties(device).uuid) != location["gpu"]:
                raise ValueError(f"the trainer's weights are on another GPU than vLLM's: {location['gpu']}")
            shared = [base64.b64decode(each["bytes"]) if isinstance(each, dict) else each for each in location["cuda"]]
            storage: Any = torch.UntypedStorage._new_shared_cuda(device, *shared[1:])
            mapped = torch.empty(0, dtype=torch.uint8, device=worker.device).set_(storage)
            worker.policy_mapping = (location, mapped)
        mapping: torch.Tensor = worker.policy_mapping[1]
        return mapping


def _unpacked(packed: torch.Tensor, dtype: str, shape: Sequence[int], first: int) -> torch.Tensor:
    kind = getattr(torch, dtype)
    return packed[first : first + math.prod(shape) * kind.itemsize].view(kind).view(tuple(shape))
