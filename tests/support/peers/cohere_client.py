"""Cohere's clients of both versions of its API, whose reranking vLLM's server offers too."""

import json
import sys

import cohere

url = sys.argv[1]
results = []
for kind in (cohere.Client, cohere.ClientV2):
    client = kind("none", base_url=url)
    ranked = client.rerank(model="rerank-v3.5", query="Name a metal.", documents=["Gold.", "Glass."], top_n=2)
    results.append({entry.index: entry.relevance_score for entry in ranked.results})
print(json.dumps(results))
