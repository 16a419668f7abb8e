"""Do plans keep their word? Planned power against studies with production's noise, for every procedure.

    python -m benchmarks.planning      # everything; continues where it stopped
    python -m benchmarks.planning --runs 0.1 --folder /tmp/glance

Planned: whole simulated studies with NumPy's noise, as `tacit plan` and the tester's page run them. Real: the
same studies through the same procedures with OpenDP's noise, on samples that plans have not seen. Run r of
both draws one study.
"""

import functools
import math
from typing import Any

from benchmarks.resumable import Answers, Cell, Counts, main, table
from tacit.local import plan_error, plan_power
from tacit.planning.effects import KINDS

RUNS = 200

AGE = {"age": (0, 120)}
MIXED = {"age": (0, 120), "weight": (0, 200), "sex": ["F", "M"]}

SETTINGS: dict[str, dict[str, Any]] = {
    "kernel_two_sample, one column": {"n": 1000, "bounds": AGE, "effect": 0.25},
    "kernel_two_sample, three columns": {"n": [2000, 1000], "bounds": MIXED, "effect": 0.35},
    "kernel_two_sample, me": {"n": 800, "bounds": AGE, "effect": 0.2, "features": "me", "n_features": 10},
    "kernel_two_sample, no effect": {"n": 1000, "bounds": AGE, "effect": 0.0},
    "curated_two_sample": {"n": 500, "bounds": AGE, "effect": 0.25},
    "curated_two_sample, permutation": {"n": 400, "bounds": AGE, "effect": 0.3, "release": "permutation"},
    "joint_independence": {"n": 300, "effect": 0.5, "permutations": 199},
    "joint_independence, no effect": {"n": 300, "effect": 0.0, "permutations": 199},
    "distance_correlation": {"n": 20_000, "effect": 0.55},
    "distance_correlation, pnc": {"n": 20_000, "effect": 0.8, "method": "pnc", "epsilon": 4.0},
    "distance_correlation, quadratic": {"n": 40_000, "effect": 0.9, "shape": "quadratic"},
    "curated_distance_correlation": {"n": 500, "effect": 0.45, "permutations": 199},
    "screening": {"n": 4000, "effect": 0.8, "epsilon": 4.0, "columns": ["a", "b", "y"]},
    "identity, mcgof": {"n": 250, "cells": 10},
    "identity, privit-laplace": {"n": 400, "cells": 10, "method": "privit-laplace"},
    "identity, zcdp-gof": {"n": 400, "cells": 10, "method": "zcdp-gof"},
    "homogeneity": {"n": 350, "cells": 8, "replicates": 999},
    "homogeneity, gaussian": {"n": 600, "cells": 8, "replicates": 999, "noise": "gaussian"},
    "independence_table": {"n": 250, "cells": (3, 4), "replicates": 999},
    "noisy_counts": {"n": 1000, "cells": 20},
    "noisy_counts, gaussian": {"n": 1000, "cells": 20, "noise": "gaussian"},
    "embedding_release": {"n": 2000, "bounds": MIXED, "n_points": 50},
    "embedding_release, candidates": {
        "n": 500,
        "bounds": AGE,
        "method": "exponential",
        "n_points": 10,
        "candidate_rows": 3,
        "delta": 0.0,
    },
}
"""Settings whose power is neither 0 nor 1, and two without an effect. Epsilon 1 where none is stated."""

SIDES = {"planned": 0, "real": 10**6}
"""What is added to the numbers of runs, so that the sides draw different samples."""


def study(name: str, run: int) -> Answers:
    """Run one planned study and one with production's noise."""
    procedure = name.partition(",")[0]
    asked: dict[str, Any] = {"epsilon": 1.0, "procedure": procedure, "runs": 1} | SETTINGS[name]
    answers: dict[str, float] = {}
    for side, offset in SIDES.items():
        chosen = asked | {"seed": run + offset, "real_noise": side == "real"}
        value = plan_error(**chosen).error if KINDS[procedure] == "release" else plan_power(**chosen).power
        answers |= {side: value, f"{side} squared": value**2}
    return answers


def cells() -> list[Cell]:
    """List the cells."""
    return [Cell(name, RUNS, functools.partial(study, name)) for name in SETTINGS]


def _mean(counts: Counts, cell: str, side: str) -> tuple[float, float] | None:
    mean, square = counts.rate(cell, side), counts.rate(cell, f"{side} squared")
    if mean is None or square is None:
        return None
    return mean, math.sqrt(max(0.0, square - mean**2) / counts.answered[cell, side])


def text(counts: Counts) -> str:
    """Write the page."""
    rows, apart = {}, []
    for name, setting in SETTINGS.items():
        planned, real = _mean(counts, name, "planned"), _mean(counts, name, "real")
        if planned is None or real is None:
            continue
        error = math.hypot(planned[1], real[1])
        if error:
            apart.append((planned[0] - real[0]) / error)
        form = ".4f" if KINDS[name.partition(",")[0]] == "release" else ".3f"
        rows[name] = {
            "n": " and ".join(map(str, n)) if isinstance(n := setting["n"], list) else str(n),
            "ε": f"{setting.get('epsilon', 1.0):g}",
            "planned": f"{planned[0]:{form}} ± {planned[1]:{form}}",
            "real noise": f"{real[0]:{form}} ± {real[1]:{form}}",
            "difference, in standard errors": f"{apart[-1]:+.1f}" if error else "0",
        }
    page = f"""# Plans against studies with the production's noise

Power, or of `noisy_counts` and `embedding_release` the error, as `tacit plan` simulates it with NumPy's
noise, and of as many studies on other samples with OpenDP's noise; {counts.runs_of("")} studies of either
kind, ± a standard error. Level .05, δ = 1e-5 (0 with candidates). Effects, columns and parameters are in
`benchmarks/planning.py`. Made by

    python -m benchmarks.planning

"""
    page += table(rows, "study") if rows else "Not run yet.\n"
    if apart:
        squares = sum(one**2 for one in apart)
        page += (
            f"\nThe squared differences, in standard errors, add up to {squares:.1f} over {len(apart)} rows: "
            "about as many as rows are expected where both kinds of study have the same power.\n"
        )
    return page


if __name__ == "__main__":
    main(__doc__, "planning", cells(), text)
