"""The profiles that ship with the package, as attributes of this module: what the members of `JUDGE_PROFILES` name."""

from functools import cache
from importlib import resources

from assay_serving.generative.profiles.profile import JudgeProfile, profile_of


@cache
def __getattr__(name: str) -> JudgeProfile:
    path = resources.files("assay_serving") / "generative" / "profiles" / "published" / f"{name}.yaml"
    if not path.is_file():
        raise AttributeError(name)
    return profile_of(path.read_text(encoding="utf-8"), name)
