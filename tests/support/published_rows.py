"""Rows in the form of published preference data sets, by the name of the adapter that reads them; texts are made up."""

from __future__ import annotations

from typing import Any

USER = [{"role": "user", "content": "Why?"}]


def said(text: str) -> list[dict[str, str]]:
    """One message of the assistant."""
    return [{"role": "assistant", "content": text}]


def _part(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "image": None, "mimeType": None}]


def _tldr_info() -> dict[str, Any]:
    return {"id": "t3_1", "post": "My cat left.", "title": "Cat", "subreddit": "pets", "site": None, "article": None}


_STEER_RATED = {"correctness": 4, "coherence": 4, "complexity": 2, "verbosity": 1}
_MODELS = {"model_a": "alpaca-13b", "model_b": "gpt-4"}
_TWO_TURNS = {
    side: [*USER, *said(f"{side} one"), {"role": "user", "content": "And?"}, *said(f"{side} two")] for side in "ab"
}
_ARENA_140K = {
    f"conversation_{side}": [
        {"role": "user", "content": _part("Why?")},
        {"role": "assistant", "content": _part(f"answer {side}")},
    ]
    for side in "ab"
}

#: Adapter -> the rows of a file.
PUBLISHED_ROWS: dict[str, list[dict[str, Any]]] = {
    "helpsteer2": [
        {"prompt": "c#", "response": "A language.", "helpfulness": 3, **_STEER_RATED},
        {"prompt": "c#", "response": "A note.", "helpfulness": 0, **_STEER_RATED},
        {"prompt": "c#", "response": "Both.", "helpfulness": [4, 3, 2], **{k: [v] for k, v in _STEER_RATED.items()}},
        {"prompt": "alone", "response": "Nothing beside it.", "helpfulness": 2, **_STEER_RATED},
        {"prompt": "c#", "response": "Off the scale.", "helpfulness": 5, **_STEER_RATED},
    ],
    "helpsteer2-preference": [
        {
            "split": "train",
            "prompt": "hi<extra_id_1>Assistant\nHello!\n<extra_id_1>User\nWhy?",
            "response_1": "x",
            "response_2": "y",
            "preference_strength": 2,
            "preference_statement": "@Response 2 is better.",
            "preference_elaboration": "It answers.",
            "three_most_similar_preferences": [{"statement": "s", "elaboration": "e", "strength": 2}] * 3,
            "all_preferences_unprocessed": [
                {"statement": "s", "elaboration": "e", "strength": 2},
                {"statement": "t", "elaboration": "f", "strength": -1},
                {"statement": "u", "elaboration": "g", "strength": -100},
            ],
        }
    ],
    "shp": [
        {
            "post_id": "p1",
            "domain": "askculinary_train",
            "upvote_ratio": 0.99,
            "history": "How long to boil an egg?",
            "human_ref_A": "Seven minutes.",
            "human_ref_B": "Forever.",
            "labels": 1,
            "score_A": 12,
            "score_B": 3,
            "score_ratio": 4.0,
        }
    ],
    "webgpt": [
        {
            "question": {"dataset": "eli5", "id": "q1", "full_text": "Why do rivers freeze?"},
            "quotes_0": {"title": ["t"], "extract": ["e"]},
            "answer_0": "x",
            "tokens_0": {"prefix": [1], "completion": [2]},
            "score_0": -0.5,
            "quotes_1": {"title": ["t"], "extract": ["e"]},
            "answer_1": "y",
            "tokens_1": {"prefix": [1], "completion": [2]},
            "score_1": 0.5,
        }
    ],
    "pku-saferlhf": [
        {
            "prompt": "How?",
            "response_0": "x",
            "response_1": "y",
            "prompt_source": "Alpaca3-8B",
            "response_0_source": "Alpaca3-8B",
            "response_1_source": "WizardLM",
            "is_response_0_safe": False,
            "is_response_1_safe": True,
            "response_0_harm_category": {"Cybercrime": True},
            "response_1_harm_category": {"Cybercrime": False},
            "response_0_severity_level": 2,
            "response_1_severity_level": 0,
            "better_response_id": 0,
            "safer_response_id": 1,
        }
    ],
    "pku-saferlhf-safety": [{"prompt": "How?", "response_0": "x", "response_1": "y", "safer_response_id": 1}],
    "nectar": [
        {
            "prompt": "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Why?\n\nAssistant: ",
            "answers": [
                {"answer": "best", "model": "gpt-4", "rank": 1.0},
                {"answer": "mid", "model": "llama", "rank": 2.0},
                {"answer": "worst", "model": "mistral", "rank": 3.0},
            ],
            "turns": 2,
            "num_responses": 3,
            "source": ["lmsys-chat-1m"],
            "good_natured": True,
        }
    ],
    "openai-tldr": [
        {
            "info": _tldr_info(),
            "summaries": [
                {"text": "x", "policy": "sup1", "note": None},
                {"text": "y", "policy": "ref", "note": "n"},
            ],
            "choice": 1,
            "worker": "w1",
            "batch": "batch3",
            "split": "train",
            "extra": {"confidence": 7},
        }
    ],
    "openai-tldr-axis": [
        {
            "info": _tldr_info(),
            "summary": {"text": text, "policy": "sup1", "note": None, "axes": {"overall": overall, "accuracy": 6}},
            "worker": worker,
            "batch": "b",
            "split": "test",
        }
        for text, overall, worker in (("x", 7, "w1"), ("y", 1, "w2"))
    ],
    "mt-bench-human": [
        {
            "question_id": 81,
            **_MODELS,
            "winner": winner,
            "judge": judge,
            "conversation_a": _TWO_TURNS["a"],
            "conversation_b": _TWO_TURNS["b"],
            "turn": 1,
        }
        for judge, winner in (("author_2", "model_a"), ("expert_0", "model_b"), ("gpt4_pair", "model_a"))
    ],
    "arena-conversations": [
        {
            "question_id": "58210e39",
            **_MODELS,
            "winner": "tie (bothbad)",
            "judge": "arena_user_973",
            "conversation_a": [*USER, *said("a")],
            "conversation_b": [*USER, *said("b")],
            "turn": 1,
            "anony": True,
            "language": "English",
            "tstamp": 1682351591.1,
        }
    ],
    "arena-140k": [
        {
            "id": "v1",
            **_MODELS,
            "winner": "model_b",
            "evaluation_session_id": "s",
            "evaluation_order": 1,
            **_ARENA_140K,
            "full_conversation": [],
            "conv_metadata": {"sum_assistant_a_tokens": 3},
            "category_tag": {"math_v0.1": {"math": False}},
            "language": "en",
            "is_code": False,
        }
    ],
    "distilabel": [
        {
            "instruction": "Add 2 and 2.",
            "generations": ["4", "and a car"],
            "generation_models": ["m1", "m2"],
            "ratings": [5, 1],
            "rationales": ["right", "wrong"],
            "model_name": "gpt-4o",
            "distilabel_metadata": {"raw_output_ultra_feedback_0": "..."},
        }
    ],
    "distilabel-dpo": [
        {
            "dataset": "capybara",
            "chosen": [*USER, *said("x")],
            "rejected": [*USER, *said("y")],
            "chosen_rating": 5.0,
            "rejected_rating": 4.0,
        }
    ],
    "distilabel-capybara-dpo": [
        {
            "source": "Airoboros",
            "conversation": [{"input": "Why?", "output": "x"}],
            "prompt": "<|user|>\nWhy?</s>\n<|assistant|>\n",
            "chosen": [*USER, *said("x")],
            "rejected": [*USER, *said("y")],
            "rating_chosen": 5,
            "rating_rejected": 2,
            "chosen_model": "original",
            "rejected_model": "notus7",
        }
    ],
    "distilabel-math-dpo": [
        {
            "metadata": "{}",
            "instruction": "Add 2 and 2.",
            "chosen_model": "gpt-4",
            "chosen_response": "4",
            "chosen_rating": 9.0,
            "rejected_model": "m",
            "rejected_response": "5",
            "rejected_rating": 6.0,
        }
    ],
    "distilabel-orca-dpo": [
        {
            "system": "Be brief.",
            "input": "Why?",
            "chosen": "x",
            "rejected": "y",
            "generations": ["x", "y"],
            "labelling_model": "gpt-4-1106-preview",
            "labelling_prompt": [{"role": "user", "content": "..."}],
            "raw_labelling_response": "9 2",
            "rating": [9.0, 2.0],
            "rationale": "x is right",
            "status": "unchanged",
        }
    ],
    "orca-dpo": [{"system": "Be brief.", "question": "Why?", "chosen": "x", "rejected": "y"}],
    "oasst-trees": [
        {
            "message_tree_id": "t1",
            "tree_state": "ready_for_export",
            "prompt": {
                "message_id": "t1",
                "text": "Why?",
                "role": "prompter",
                "lang": "en",
                "replies": [
                    {
                        "message_id": "m1",
                        "parent_id": "t1",
                        "text": "mid",
                        "role": "assistant",
                        "lang": "en",
                        "rank": 1,
                    },
                    {
                        "message_id": "m2",
                        "parent_id": "t1",
                        "text": "best",
                        "role": "assistant",
                        "lang": "en",
                        "rank": 0,
                        "replies": [
                            {
                                "message_id": "m3",
                                "text": "And?",
                                "role": "prompter",
                                "lang": "en",
                                "replies": [
                                    {"text": "deep 2", "role": "assistant", "lang": "en", "rank": 1},
                                    {"text": "deep 1", "role": "assistant", "lang": "en", "rank": 0},
                                    {"text": "gone", "role": "assistant", "rank": 2, "deleted": True},
                                ],
                            }
                        ],
                    },
                    {"message_id": "m4", "text": "unranked", "role": "assistant", "lang": "en", "rank": None},
                ],
            },
        }
    ],
    "oasst-ranked": [{"prompt": ["Hi", "Hello", "Why?"], "replies": ["best", "mid", "worst"]}],
    "llama-factory-alpaca": [
        {
            "instruction": "Translate.",
            "input": "cat",
            "chosen": "Katze",
            "rejected": "Hund",
            "system": "Be brief.",
            "history": [["Hi", "Hello"]],
        }
    ],
    "llama-factory-output-list": [{"instruction": "Why?", "input": "", "output": ["x", "y"]}],
    "llama-factory-sharegpt": [
        {
            "conversations": [
                {"from": "human", "value": "Hi"},
                {"from": "gpt", "value": "Hello"},
                {"from": "human", "value": "Why?"},
            ],
            "chosen": {"from": "gpt", "value": "x"},
            "rejected": {"from": "gpt", "value": "y"},
        }
    ],
    "llama-factory-kto": [
        {"instruction": "Why?", "input": "", "output": output, "kto_tag": tag}
        for output, tag in (("x", True), ("y", False))
    ],
    "llama-factory-kto-sharegpt": [
        {
            "conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": output}],
            "kto_tag": tag,
        }
        for output, tag in (("x", True), ("y", False))
    ],
    "kto-messages": [
        {"messages": [*USER, *said(output)], "label": label} for output, label in (("x", True), ("y", False))
    ],
    "alpaca-eval": [
        {
            "instruction": "Why?",
            "output_1": "x",
            "generator_1": "gpt4_1106_preview",
            "dataset": "helpful_base",
            "output_2": "y",
            "generator_2": "alpaca-7b",
            "annotator": "weighted_alpaca_eval_gpt4_turbo",
            "preference": preference,
            "price_per_example": 0.008,
            "raw_completion": {"text": "M"},
        }
        for preference in (1.0000001827, 1.9, 1.5)
    ],
    "pandalm": [
        {
            "idx": 4,
            "motivation_app": "Google Search",
            "cmp_key": "cerebras-gpt-6.7B_pythia-6.9b",
            "instruction": "Come up with queries.",
            "input": float("nan"),
            "response1": "x",
            "response2": "y",
            "annotator1": 2,
            "annotator2": 2,
            "annotator3": 0,
        }
    ],
    "llmbar": [{"input": "What is 75+48?", "output_1": "123", "output_2": "134", "label": 2}],
    "judgelm": [
        {
            "question_id": 7,
            "text": "10 1\nThe first is right.",
            "score": [10.0, 1.0],
            "question_body": "Why?",
            "answer1_body": "x",
            "answer2_body": "y",
            "answer1_model_id": "m1",
            "answer2_model_id": "m2",
        }
    ],
    "stack-exchange-paired": [
        {
            "qid": 5,
            "question": "How?",
            "date": "2012-01-01",
            "metadata": ["https://example.org/5"],
            "response_j": "x",
            "response_k": "y",
        }
    ],
    "stack-exchange-preferences": [
        {
            "qid": 5,
            "question": "How?",
            "answers": [
                {"answer_id": 1, "author": "a", "text": "x", "pm_score": 4, "selected": True},
                {"answer_id": 2, "author": "b", "text": "y", "pm_score": 1, "selected": False},
            ],
            "date": "2012/01/01",
            "metadata": ["https://example.org/5"],
        }
    ],
    "beavertails": [
        {"prompt": "How?", "response": "x", "category": {"violence": False}, "is_safe": True},
        {"prompt": "How?", "response": "y", "category": {"violence": True}, "is_safe": False},
    ],
    "prometheus-preference": [
        {
            "orig_instruction": "Why?",
            "orig_response_A": "x",
            "orig_response_B": "y",
            "orig_reference_answer": "r",
            "orig_criteria": "Is it clear?",
            "orig_feedback": "B is clearer.",
            "orig_preference": "B",
            "orig_score_A": "2",
            "orig_score_B": "5",
            "instruction": "###Task",
            "output": "Feedback: ... [RESULT] B",
        }
    ],
    "prometheus-feedback": [
        {
            "orig_instruction": "Why?",
            "orig_response": response,
            "orig_score": score,
            "orig_criteria": "Is it clear?",
            "orig_feedback": f"it earns {score}",
            "orig_reference_answer": "r",
            "instruction": "###Task",
            "output": "...",
        }
        for response, score in (("x", "5"), ("y", "1"))
    ],
}
