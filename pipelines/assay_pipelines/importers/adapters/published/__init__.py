"""Adapters of published data sets, one YAML file each: the module's attribute of a file's name, `-` written as `_`, is
its layout class, so that the registry finds it like any other.
"""

from typing import Any

from assay_pipelines.importers.adapters.loading import PUBLISHED, adapter_class


def __getattr__(name: str) -> Any:
    path = PUBLISHED / f"{name.replace('_', '-')}.yaml"
    if name.startswith("__") or not path.is_file():
        raise AttributeError(name)
    return adapter_class(path)
