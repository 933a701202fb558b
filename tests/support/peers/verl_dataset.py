"""verl's RLHFDataset over exported files: the messages of its rollouts. The processor, which it asks for where there
are images, is never called."""

import json
import sys

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset

model, cache, *files = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)
settings = OmegaConf.create({"cache_dir": cache, "filter_overlong_prompts": False})
found = []
for file in files:
    read = RLHFDataset(file, tokenizer, settings, processor=tokenizer)
    rows = [read[number] for number in range(len(read))]
    found.append([{"prompt": row["raw_prompt"], "index": row["index"], "extra": row["extra_info"]} for row in rows])
print(json.dumps(found))
