"""Numbers that the paper prints and the package does not need; the others are in `refusal_index.data.published`.

Each constant names the table by its caption.
"""

from __future__ import annotations

METRICS = ("correct_rate", "refusal_rate", "correct_given_attempted", "f_score", "weighted_score", "refusal_index")

# "Score variability across different refusal rates": normalized differences, then coefficients of variation.
VARIABILITY = {
    "Mistral-123B": ((-0.40, 0.93, 0.37, -0.16, -0.83, 0.06), (0.16, 0.35, 0.14, 0.06, 0.31, 0.04)),
    "Qwen2-35B": ((-0.47, 0.95, 0.12, -0.31, -0.62, -0.19), (0.22, 0.47, 0.06, 0.14, 0.32, 0.09)),
    "Qwen2.5-72B": ((-0.84, 0.43, 0.50, -0.60, -1.32, -0.07), (0.35, 0.17, 0.19, 0.26, 0.53, 0.03)),
    "Qwen3-32B": ((-0.96, 0.54, 0.48, -0.71, -1.42, 0.14), (0.35, 0.19, 0.17, 0.28, 0.51, 0.07)),
    "Gemma-3-12B": ((-1.31, 2.04, 0.96, -0.93, 1.79, 0.42), (0.49, 0.76, 0.39, 0.36, 0.66, 0.23)),
}
VARIABILITY_AVERAGES = ((-0.80, 0.98, 0.49, -0.54, -0.48, 0.07), (0.31, 0.39, 0.19, 0.22, 0.47, 0.09))
ROW_OF_SIMPLEQA = {"Qwen2-35B": "Qwen3-235B", "Qwen3-32B": "Qwen3-32B-Think"}
"""Rows of the table on SimpleQA that have the rates of this table, under other names."""

# "Ranking stability across different evaluation settings": Kendall's W, then winner entropy, each as default, without
# the effect of the correct answer rate, without that of the refusal rate, and without both.
RANDOM_W = 0.25
RANDOM_ENTROPY = 0.61
ENTROPIES = (0.00, 0.18, 0.33, 0.37, 0.47, 0.48, 0.52, 0.61, 1.00)
"""The different winner entropies in the table."""

# "Refusal Index results on hallucination benchmarks": the row of averages.
NAMES_ON_SIMPLEQA = {"Gemma-3-12b": "Gemma-3-12B", "Mistral-Large": "Mistral-123B"}
"""Models of that table by their names in the table on SimpleQA, where they differ."""
HALLUCINATION_AVERAGES = (0.48, 0.56, 0.24, 0.32)

# "Copula comparison on SimpleQA across model-prompt combinations": parameters, log-likelihood, AIC and BIC.
COPULAS = {
    "Gaussian": (1, -1832.08, 3666.16, 3671.76),
    "Student-t": (2, -1859.14, 3722.27, 3733.48),
    "Gumbel": (1, -2086.86, 4175.72, 4181.32),
    "Clayton": (1, -2200.13, 4402.26, 4407.86),
}
WIN_RATES = (1.000, 0.676, 0.647, 0.632, 0.618)
"""The different win rates of the Gaussian copula in the table."""
