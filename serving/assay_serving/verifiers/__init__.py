"""Constraints on a response that a program can decide, and the verdicts on them.

Covers: the kinds of constraints with their wording, check and JSON form (the seventeen that generated prompts ask for,
IFEval's, and four that run foreign input in worker processes), which of them can stand together, and the verification
of a response. Leaves out: prompts built from them
(`assay_policy_training.plugins.prompts`) and judgments or rewards made of verdicts.
"""

from __future__ import annotations

from assay_serving.verifiers.catalogue import ASKED_TYPES, CONSTRAINT_TYPES, KINDS, constraint_from_dict
from assay_serving.verifiers.characters import AllLowercase, AllUppercase, ContainsNumber, NoCommas
from assay_serving.verifiers.compatibility import compatible, conflict
from assay_serving.verifiers.constraint import Constraint
from assay_serving.verifiers.ends import EndsWith, Quoted, StartsWith
from assay_serving.verifiers.json_schemas import JsonSchema
from assay_serving.verifiers.language import AnswerLanguage
from assay_serving.verifiers.layout import BulletCount, JsonObject, NumberedList
from assay_serving.verifiers.length import MaxWords, MinWords, ParagraphCount, SentenceCount
from assay_serving.verifiers.maths import MathAnswer
from assay_serving.verifiers.patterns import Regex
from assay_serving.verifiers.programs import PythonTests
from assay_serving.verifiers.sandbox.worker_pool import Outcome, PoolConfig, VerifierPool, shared_pool
from assay_serving.verifiers.verdict import Verdict, Verification, verify
from assay_serving.verifiers.vocabulary import ForbiddenWords, RequiredWords

__all__ = [
    "ASKED_TYPES",
    "CONSTRAINT_TYPES",
    "KINDS",
    "AllLowercase",
    "AllUppercase",
    "AnswerLanguage",
    "BulletCount",
    "Constraint",
    "ContainsNumber",
    "EndsWith",
    "ForbiddenWords",
    "JsonObject",
    "JsonSchema",
    "MathAnswer",
    "MaxWords",
    "MinWords",
    "NoCommas",
    "NumberedList",
    "Outcome",
    "ParagraphCount",
    "PoolConfig",
    "PythonTests",
    "Quoted",
    "Regex",
    "RequiredWords",
    "SentenceCount",
    "StartsWith",
    "Verdict",
    "Verification",
    "VerifierPool",
    "compatible",
    "conflict",
    "constraint_from_dict",
    "shared_pool",
    "verify",
]
