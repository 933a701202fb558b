"""SGLang's `RuntimeEndpoint`. The `__init__` of its package, which loads the engine (triton, CUDA), is not run."""

import importlib.util
import json
import sys
import types

package = types.ModuleType("sglang")
package.__path__ = list(importlib.util.find_spec("sglang").submodule_search_locations)
sys.modules["sglang"] = package

from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint  # noqa: E402

endpoint = RuntimeEndpoint(sys.argv[1])
print(json.dumps([endpoint.get_model_name(), endpoint.model_info["is_generation"]]))
