"""LLaMA-Factory's reading of `dataset_info.json`, its converter of each entry's rows, and what its formatters make of
calls and tools.

The `__init__` of its packages, which import the whole trainer, are not run."""

import importlib.util
import json
import sys
import types
from types import SimpleNamespace

[root] = importlib.util.find_spec("llamafactory").submodule_search_locations
for name in ("llamafactory", "llamafactory.data", "llamafactory.extras"):
    package = types.ModuleType(name)
    package.__path__ = [root + name.removeprefix("llamafactory").replace(".", "/")]
    sys.modules[name] = package

import datasets  # noqa: E402
from llamafactory.data.converter import align_dataset  # noqa: E402
from llamafactory.data.formatter import FunctionFormatter, ToolFormatter  # noqa: E402
from llamafactory.data.parser import get_dataset_list  # noqa: E402

folder, *names = sys.argv[1:]
arguments = SimpleNamespace(media_dir=folder, streaming=False, preprocessing_num_workers=None, overwrite_cache=True)
training = SimpleNamespace(local_process_index=0)
calls = FunctionFormatter(slots=["{{content}}"], tool_format="qwen")
tools = ToolFormatter(tool_format="qwen")
words = {"thought_words": ("<think>", "</think>"), "tool_call_words": ("<tool_call>\n", "\n</tool_call>")}
found = {}
for entry in get_dataset_list(names, folder):
    rows = datasets.load_dataset(
        "json", data_files=f"{folder}/{entry.dataset_name}", split=entry.split, cache_dir=f"{folder}/cache"
    )
    aligned = align_dataset(rows, entry, arguments, training).to_list()
    for row in aligned:
        row["called"] = [
            calls.apply(content=turn["content"], **words)
            for turn in row["_prompt"] + row["_response"]
            if turn["role"] == "function"
        ]
        row["defined"] = tools.apply(content=row["_tools"]) if row["_tools"] else []
    found[entry.dataset_name] = aligned
print(json.dumps(found))
