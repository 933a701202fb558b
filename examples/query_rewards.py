"""Query rewards from a running server, as an RL run does: groups of responses, failures that are not numbers.

    assay serve helpful --port 8000                  # in another terminal
    python examples/query_rewards.py --url http://127.0.0.1:8000

Prints each response's reward, and the advantages of its group as GRPO takes them: a response without a score has none.
"""

from __future__ import annotations

import argparse
import os
from statistics import mean, pstdev

from assay.domain import Message
from assay.score import Score
from assay_serving.client import RewardClient

GROUPS = {
    "What is gold?": ["A soft, yellow, dense metal; symbol Au.", "A metal.", "No idea.", "gold gold gold gold"],
    "Say hello in French.": ["Bonjour!", "Hello!", "", "Bonjour, et bienvenue."],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of the reward server")
    parser.add_argument("--model", help="where the server has several")
    arguments = parser.parse_args()
    with RewardClient(arguments.url, model=arguments.model, api_key=os.environ.get("ASSAY_API_KEY")) as client:
        for question, responses in GROUPS.items():
            print(question)
            results = client.score_group((Message("user", question),), responses)
            rewards = [result.reward for result in results if isinstance(result, Score)]
            spread = pstdev(rewards) if len(rewards) > 1 else 0.0
            for response, result in zip(responses, results, strict=True):
                if not isinstance(result, Score):
                    print(f"    no score: {result.message}")
                    continue
                advantage = (result.reward - mean(rewards)) / (spread + 1e-6)
                print(f"    {result.reward:+.3f}, advantage {advantage:+.2f}: {response!r}")


if __name__ == "__main__":
    main()
