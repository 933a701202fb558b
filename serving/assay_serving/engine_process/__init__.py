"""One process that holds the models, several that speak HTTP, and one that keeps them alive.

Covers: the messages between them (`wire`) and how they travel (`connection`), the host of models that is elsewhere
(`link`), what answers it (`endpoint`), the programs of the processes (`engine`, `front`, told by `launch`) and their
keeper (`supervisor`). Leaves out: HTTP (`assay_serving.server`), scoring. Only `engine` imports torch.
"""
