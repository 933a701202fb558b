"""What a vLLM worker must know to take a policy's new weights: loaded into vLLM's own processes by
`--worker-extension-cls`, so it imports nothing of Assay, and of vLLM only inside a call.

Why plain `reload_weights` is not enough on a CPU: where input and output embeddings are tied, vLLM multiplies by a
packed copy of the vocabulary head that a reload does not make again. Nothing fails; the head is that of the weights it
started with. Seen with vLLM 0.32.
"""

from importlib import import_module
from typing import Any


class PolicyWorker:
    """Mixed into vLLM's worker, whose `reload_weights` and `model_runner` it uses."""

    def load_policy(self, weights_path: str) -> dict[str, Any]:
        """Take the weights of the checkpoint folder. `rebuilt`: whether the packed head was rebuilt."""
        worker: Any = self
        worker.loaded_policy = None
        worker.reload_weights(weights_path=weights_path)
        model = worker.model_runner.get_model()
        head: Any = getattr(model, "lm_head", None)
        embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
        tied = bool(getattr(getattr(model, "config", None), "tie_word_embeddings", False))
        if not (tied and hasattr(head, "cpu_linear") and embedding is not None):
            worker.loaded_policy = weights_path
            return {"rebuilt": False}
        head.weight = embedding.weight
        import_module("vllm.model_executor.layers.utils").dispatch_cpu_unquantized_gemm(head, remove_weight=False)
        worker.loaded_policy = weights_path
        return {"rebuilt": True}

    def policy_path(self) -> str | None:
        """The folder of the weights that it took last; None in a worker that was started since."""
        return getattr(self, "loaded_policy", None)
