"""What each procedure's parameters mean, in a sentence each; docs/procedures says more."""

from collections.abc import Mapping

_COUNTS = {
    "unlisted": "Whether other and missing values have cells of their own, or count with the last level.",
    "cuts": "Inner edges of each numeric column, by its name, increasing and strictly within its bounds.",
    "noise": "Laplace noise costs epsilon alone; gaussian needs a delta.",
    "rho": "zCDP of Gaussian noise (variance 1/rho on each cell); by default all that the budget allows.",
}

_TABLES = _COUNTS | {
    "replicates": "Simulated null statistics; the smallest p-value is 1/(replicates + 1).",
}

_FEATURES = {
    "features": "What is compared: auto (columns and their pairs), columns, me (places), scf (frequencies).",
    "n_features": "Number of features of me and scf.",
    "kernel": "The kernel's shape, of me; laplacian sees finer structure.",
    "bandwidth": "Of me and scf, in units of the scaled columns; by default the locations' median distance.",
    "category_similarity": "Kernel value of two rows that differ in one category.",
    "locations": "Public rows, one value per column in its own units, in place of drawn ones (me).",
    "frequencies": "Public frequencies, one value per column, in place of drawn ones (scf).",
    "cycles": "Frequencies in turns over a column's bounds (auto and columns).",
    "pair_share": "Part of the level and of the weight that goes to pairs of columns (auto).",
    "mean_share": "Part of the budget that buys means; the rest buys covariances (me and scf).",
    "regularisation": "Of the published statistic.",
    "replicates": "Simulated nulls of the noise-aware form.",
}

_DISTANCE = {
    "permutations": "Permutations of the test; they cost no privacy.",
    "n_features": "Frequencies of a numeric column; more see finer structure and blur the estimate.",
}

_GROUPS = "The variables, as lists of columns; every column of the study in one of them."

PARAMETER_WORDS: Mapping[str, Mapping[str, str]] = {
    "kernel_two_sample": _FEATURES
    | {
        "calibration": "tight, or paper: the published release, for comparison.",
        "statistic": "Form of the test; auto suits the features.",
        "null": "How the p-value is computed; auto is the statistic's own.",
    },
    "curated_two_sample": _FEATURES
    | {
        "release": "What leaves the curator: noisy means and covariances, one decision, or one number.",
        "samples": "The two lists of owners' names that are compared; by default two owners, one in each.",
        "features": "What is compared; kernel, the whole product kernel, with permutation alone.",
        "calibration": "tight, or paper: the published release, for comparison.",
        "statistic": "Form of the test; auto suits the features.",
        "permutations": "Permutations of the permutation release; they cost no privacy.",
    },
    "joint_independence": {
        "groups": _GROUPS + " By default every column by itself.",
        "kernel": "Kernel of numeric columns; distance gives a test of distance covariance.",
        "bandwidth": "In units of the scaled columns; a list averages kernels of several bandwidths.",
        "category_similarity": "Kernel value of two rows that differ in one category.",
        "permutations": "Permutations of the test, at least 1/level - 1; they cost no privacy.",
    },
    "distance_correlation": _DISTANCE
    | {
        "method": "sketch; or pnc and pnc-disjoint, the published projections of every unit, for comparison.",
        "mode": "tester: both owners add noise. peer: one owner's release goes to the other alone (pnc).",
        "receiver": "The owner that receives, in peer mode.",
        "publish": "Whether the receiver releases a private covariance, in peer mode.",
        "n_projections": "Public directions, for an owner of several numeric columns.",
    },
    "curated_distance_correlation": {
        "groups": "The columns of X and those of Y; by default the study's two columns.",
        "test": "Whether a part of epsilon buys the decision of a permutation test.",
        "test_share": "That part of epsilon.",
        "permutations": _DISTANCE["permutations"],
    },
    "screening": _DISTANCE
    | {
        "outcome": "The owner whose columns are the outcomes; by default the one with fewer columns.",
        "control": "Control of false discoveries: by holds always, bh assumes positive dependence.",
        "matrix": "Also estimate the correlations of all columns with each other.",
    },
    "noisy_counts": _COUNTS,
    "homogeneity": _TABLES,
    "independence_table": _TABLES,
    "identity": _COUNTS
    | {
        "method": "What the owner sends: noisy counts (mcgof, zcdp-gof), one statistic, or one decision.",
        "probabilities": "The known distribution: of every combination of levels, the last column's fastest.",
        "weights": "Of cells, in mcgof and privit-laplace.",
        "noise": "Of mcgof: laplace, or gaussian, which needs a delta.",
        "null": "Null distribution of zcdp-gof.",
        "clipping": "Of privit-laplace: tight, or filter, as published.",
        "distance": "Total variation distance that the Priv'IT methods look for.",
        "samples": "The m of privit; by default from the number of units.",
        "blocks": "Blocks of privit, whose majority decides; by default from the number of units.",
        "replicates": "Simulations of the null distribution; at least 1/level - 1.",
    },
    "embedding_release": {
        "method": "subspace (noisy mean on points), random-features, or exponential (a candidate, drawn).",
        "noise": "By default gaussian where the study has a delta, else laplace.",
        "kernel": "The kernel's shape.",
        "n_points": "Points that are drawn: noise grows with their square root, what they miss shrinks.",
        "placement": "Where points are drawn: over the whole domain, around its middle, or from histograms.",
        "points": "Public points in place of drawn ones: rows with one value per column, in its own units.",
        "n_bins": "Equal bins of each numeric column's histogram; by default 20.",
        "whole_numbers": "Columns publicly known to hold whole numbers: a bin for each, points on them.",
        "histogram_share": "Part of the budget that buys the histograms; by default a quarter.",
        "n_frequencies": "Random frequencies of random-features.",
        "candidates": "Databases that exponential chooses from, each a list of rows.",
        "candidate_rows": "Every multiset of so many of the points is a candidate (exponential).",
        "bandwidth": "In units of the scaled columns; by default the points' median distance.",
        "category_similarity": "Kernel value of two different categories of one column.",
    },
}
"""By procedure and parameter."""
