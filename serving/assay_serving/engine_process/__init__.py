"""A server of several processes: one engine with the models, HTTP workers, and a supervisor that restarts them.

Covers: messages (`wire`) and frames (`connection`) between worker and engine, the worker's backend (`engine_client`)
and the engine's side (`engine_server`), the programs of the processes (`engine`, `http_worker`) and their pipes to the
supervisor (`launch`), the `supervisor`, its private folder (`folder`). Leaves out: HTTP (`assay_serving.server`),
scoring. Only `engine` imports torch.
"""
