"""verl's RLHFDataset over an exported file: the messages of its rollouts. The processor, which it asks for where there
are images, is never called."""

import json
import sys

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset

file, model, cache = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(model)
settings = OmegaConf.create({"cache_dir": cache, "filter_overlong_prompts": False})
read = RLHFDataset(file, tokenizer, settings, processor=tokenizer)
rows = [read[number] for number in range(len(read))]
print(json.dumps([{"prompt": row["raw_prompt"], "index": row["index"], "extra": row["extra_info"]} for row in rows]))
