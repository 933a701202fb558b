"""The registry of judge profiles: how judges that were trained elsewhere are asked and read.

Leaves out: what a profile is (`profiles.profile`); finding one by name, beside our own formats (`templates`).
"""

from importlib import resources
from typing import Any

from assay.registry import Kind

SHIPPED = "assay_serving.generative.profiles.shipped"


def shipped_names() -> list[str]:
    """Names of the profiles in the package, each a YAML file."""
    folder = resources.files("assay_serving") / "generative" / "profiles" / "published"
    return sorted(e.name.removesuffix(".yaml") for e in folder.iterdir() if e.name.endswith(".yaml"))


JUDGE_PROFILES: Kind[Any] = Kind(
    "judge_profile",
    "How a judge was trained to be asked and read: prompt, generation settings, parser (also a YAML file).",
    {name: f"{SHIPPED}:{name}" for name in shipped_names()},
    requires=("ask", "read", "responses", "hash", "judging"),
    option="--judge-profile",
)
