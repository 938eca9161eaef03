"""The engine against the interpreter: generated merges, many side by side, on every sound path.

A failure shows the smallest lane that still differs. The same number always gives the same merges.
"""

from __future__ import annotations

import pytest
from lanes import Verdicts, as_text, difference, lanes_of, program, refusal_difference, smallest

LANES = 60
QUICK = range(12)
LONG = range(1000, 1020)
MERGES_OF_A_LONG_BLOCK = 250


def check(number, spark, directory):
    """Compares the lanes of one program; returns how many merges were compared."""
    verdicts = Verdicts.of(lanes_of(program(number), LANES, number))

    def differs(cases):
        merged = Verdicts.of(cases).merged
        return difference(spark, directory, merged) if merged else ""

    merged = [case for case, _ in verdicts.merged]
    if merged and differs(merged):
        case, text = smallest(merged, differs)
        pytest.fail(f"program {number}, {text}\n{as_text(case)}")
    for kind in {type(error) for _, error in verdicts.refused}:
        alone = next(pair for pair in verdicts.refused if type(pair[1]) is kind)
        text = refusal_difference(spark, directory, [alone])
        assert not text, f"program {number}, {text}\n{as_text(alone[0])}"
    return len(merged)


@pytest.mark.parametrize("number", QUICK)
def test_engine_agrees_with_the_interpreter_on_every_sound_path(number, spark, tmp_path):
    check(number, spark, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("block", LONG)
def test_engine_agrees_with_the_interpreter_in_many_more_merges(block, spark, tmp_path):
    merges, number = 0, 1000 * block
    while merges < MERGES_OF_A_LONG_BLOCK:
        merges += check(number, spark, tmp_path)
        number += 1
