"""The sections: which work is done, by whom, and what is held against what.

Each section is a function from a :class:`~benchmarks.workbench.Workbench` to a :class:`~benchmarks.results.Result`;
`SECTIONS` names them. A bar is one section's, and sections of one kind of work share a module.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.results import Result
from benchmarks.sections.feeds import p15
from benchmarks.sections.history import p6, p6h
from benchmarks.sections.layout import p14
from benchmarks.sections.merges import p1, p2, p3, p4, p8, p11
from benchmarks.sections.reads import p5, p5d, p5h, p7
from benchmarks.sections.streams import p12
from benchmarks.sections.upkeep import p9, p10
from benchmarks.workbench import Workbench

SECTIONS: dict[str, Callable[[Workbench], Result]] = {
    "P1": p1,
    "P2": p2,
    "P3": p3,
    "P4": p4,
    "P5": p5,
    "P5d": p5d,
    "P5h": p5h,
    "P6": p6,
    "P6h": p6h,
    "P7": p7,
    "P8": p8,
    "P9": p9,
    "P10": p10,
    "P11": p11,
    "P12": p12,
    "P14": p14,
    "P15": p15,
}
