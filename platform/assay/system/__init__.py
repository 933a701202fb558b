"""The operating system under Assay: files, processes, locks, signals."""
