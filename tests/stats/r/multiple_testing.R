# Adjusted p-values and critical values used in tests/stats/test_ranking.py.
options(digits = 15)
p <- c(0.011, 0.02, 0.04, 0.0004, 0.5, 0.02, 0.9)
print(p.adjust(p, method = "holm"))
# Tukey: the largest standardised difference of k independent estimates of one variance
for (k in c(3, 8)) print(qtukey(0.95, k, Inf) / sqrt(2))
# and the single-step p-value of a standardised difference of 2.5
for (k in c(3, 8)) print(ptukey(2.5 * sqrt(2), k, Inf, lower.tail = FALSE))
