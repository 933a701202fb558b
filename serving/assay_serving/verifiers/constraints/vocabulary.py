"""Constraints on which words a response holds.

Words and phrases match in any case, as whole words, also inside hyphenated compounds and before an apostrophe
(`segmentation.pieces`): "dog" is in "Dog-friendly" and in "the dog's", and not in "dogma" or "dogs". Leaves out:
inflected forms; list "dog" and "dogs" to accept both.
"""

from dataclasses import dataclass, field

from assay.system.plurals import counted
from assay_serving.verifiers.constraint import PHRASES, Constraint, Verdict, quoted_list
from assay_serving.verifiers.segmentation import contains_phrase, pieces


@dataclass(frozen=True)
class RequiredWords(Constraint):
    """Every one of `phrases` occurs."""

    phrases: tuple[str, ...] = field(metadata=PHRASES)

    def judge(self, response: str) -> Verdict:
        tokens = pieces(response)
        missing = [phrase for phrase in self.phrases if not contains_phrase(tokens, phrase)]
        if missing:
            return Verdict(False, f"missing {quoted_list(missing)}")
        return Verdict(True, f"holds {quoted_list(self.phrases)}")


@dataclass(frozen=True)
class ForbiddenWords(Constraint):
    """None of `phrases` occurs."""

    phrases: tuple[str, ...] = field(metadata=PHRASES)

    def judge(self, response: str) -> Verdict:
        tokens = pieces(response)
        present = [phrase for phrase in self.phrases if contains_phrase(tokens, phrase)]
        if present:
            return Verdict(False, f"uses {quoted_list(present)}")
        return Verdict(True, f"none of {counted(len(self.phrases), 'forbidden word')}")
