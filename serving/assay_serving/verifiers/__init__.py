"""Verifiable constraints on a response, and the verdicts on them.

Covers: constraints with their wording, check and JSON form (those of generated prompts, IFEval's, and four that run
untrusted input in worker processes), which of them can be combined, the verification of a response. Leaves out: prompts
built from them (`assay_policy_training.plugins.prompts`), judgments and rewards made of verdicts.
"""

from assay_serving.verifiers.catalogue import VERIFIERS, constraint_from_dict
from assay_serving.verifiers.compatibility import compatible, conflict
from assay_serving.verifiers.constraint import Constraint, Verdict, Verification
from assay_serving.verifiers.constraints.characters import AllLowercase, AllUppercase, ContainsNumber, NoCommas
from assay_serving.verifiers.constraints.detection import AnswerLanguage
from assay_serving.verifiers.constraints.ends import EndsWith, Quoted, StartsWith
from assay_serving.verifiers.constraints.json_schemas import JsonSchema
from assay_serving.verifiers.constraints.layout import BulletCount, JsonObject, NumberedList
from assay_serving.verifiers.constraints.length import MaxWords, MinWords, ParagraphCount, SentenceCount
from assay_serving.verifiers.constraints.maths import MathAnswer
from assay_serving.verifiers.constraints.patterns import Regex
from assay_serving.verifiers.constraints.programs import PythonTests
from assay_serving.verifiers.constraints.vocabulary import ForbiddenWords, RequiredWords
from assay_serving.verifiers.sandbox.worker_pool import Outcome, PoolConfig, VerifierPool, shared_pool, verify

__all__ = [
    "VERIFIERS",
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
