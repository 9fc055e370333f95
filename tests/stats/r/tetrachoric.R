# Values stored in tests/stats/test_estimator.py and test_intervals.py: Rscript tetrachoric.R
# R 4.2.2, psych 2.2.9, polycor 0.8-1.
suppressMessages(library(psych))
suppressMessages(library(polycor))

tables <- list(
  c(710, 30, 210, 50), c(219, 41, 2595, 1471), c(100, 900, 900, 100), c(4, 36, 127, 4159), c(40, 10, 20, 30)
)
for (counts in tables) {
  cells <- matrix(counts, 2, byrow = TRUE)
  # Without the half that psych would add to empty cells.
  rho <- psych::tetrachoric(cells, correct = 0)$rho
  fit <- polychor(cells, ML = TRUE, std.err = TRUE)
  cat(counts, sprintf("psych rho %.8f, polycor rho %.8f, standard error %.8f", rho, fit$rho, sqrt(fit$var[1, 1])), "\n")
}
