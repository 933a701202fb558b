"""A server of several processes: engines with the models, HTTP workers, and a supervisor that restarts them.

Covers: messages (`wire`) and frames (`connection`) between worker and engine, the worker's backend (`engine_client`,
one `engine_link` for each engine, `merging` of their reports) and the engine's side (`engine_server`), the programs of
the processes (`engine`, `http_worker`) and their pipes to the supervisor (`launch`), the `supervisor`, its private
folder (`folder`), changes of all `replicas` together (`orders`, `reloading`). Leaves out: HTTP
(`assay_serving.server`), scoring. Only `engine` imports torch.
"""
