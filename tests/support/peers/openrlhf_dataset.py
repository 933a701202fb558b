"""OpenRLHF's RewardDataset over an exported file: what it gives the tokenizer."""

import json
import sys
from types import SimpleNamespace

import datasets
from openrlhf.datasets.reward_dataset import RewardDataset
from transformers import AutoTokenizer

file, model, cache = sys.argv[1:4]
names = SimpleNamespace(prompt_key=None, chosen_key="chosen", rejected_key="rejected", apply_chat_template=True)
rows = datasets.load_dataset("json", data_files=file, split="train", cache_dir=cache)
tokenizer = AutoTokenizer.from_pretrained(model)
read = RewardDataset(rows, tokenizer, 512, SimpleNamespace(args=SimpleNamespace(data=names)), num_processors=None)
print(json.dumps(list(zip(read.chosens, read.rejects, read.extras, strict=True))))
