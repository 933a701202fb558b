"""Training in several processes: the process group, data parallelism, FSDP."""
