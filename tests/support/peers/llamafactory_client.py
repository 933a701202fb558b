"""LLaMA-Factory's `get_rewards_from_server`.

The `__init__` of its packages, which import the whole trainer, are not run."""

import importlib.util
import json
import sys
import types

[root] = importlib.util.find_spec("llamafactory").submodule_search_locations
for name in ("llamafactory", "llamafactory.train", "llamafactory.train.ppo"):
    package = types.ModuleType(name)
    package.__path__ = [root + name.removeprefix("llamafactory").replace(".", "/")]
    sys.modules[name] = package

from llamafactory.train.ppo.ppo_utils import get_rewards_from_server  # noqa: E402

url, text = sys.argv[1], sys.argv[3]
print(json.dumps(get_rewards_from_server(f"{url}/v1/score/evaluation", [text, text]).tolist()))
