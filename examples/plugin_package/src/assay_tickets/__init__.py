"""Support tickets for Assay. Each module has one member of one kind; `pyproject.toml` names them."""
