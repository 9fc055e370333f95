# Values stored in tests/studies/test_copulas.py: Rscript copulas.R
# R 4.2.2, mvtnorm 1.1-3.
library(mvtnorm)
options(digits = 16)

# Upper orthant of the t copula at refusal rate r and error rate mu; TVPACK is exact for whole degrees of freedom.
student <- function(r, mu, rho, df) {
  limits <- qt(c(r, mu), df, lower.tail = FALSE)
  corr <- matrix(c(1, rho, rho, 1), 2)
  as.numeric(pmvt(lower = limits, upper = Inf, df = df, corr = corr, algorithm = TVPACK(1e-16)))
}
print(student(0.74, 0.92, 0.5, 4))
print(student(0.03, 0.9, 0.52, 4))
print(student(0.97, 0.9, 0.52, 4))
print(student(0.3, 0.3, -0.8, 4))
print(student(0.1, 0.1, 0.999, 4))
print(student(0.5, 0.2, 0.0, 1))
print(student(0.6, 0.35, -0.3, 11))

# Archimedean copulas by their generators: C(u, v) = psi(phi(u) + phi(v)), and the upper orthant r + mu - 1 + C.
archimedean <- function(phi, psi) function(u, v) psi(phi(u) + phi(v))
upper <- function(copula, r, mu) r + mu - 1 + copula(1 - r, 1 - mu)
clayton <- function(t) archimedean(function(u) (u^-t - 1) / t, function(s) (1 + t * s)^(-1 / t))
gumbel <- function(t) archimedean(function(u) (-log(u))^t, function(s) exp(-s^(1 / t)))
frank <- function(t) archimedean(
  function(u) -log((exp(-t * u) - 1) / (exp(-t) - 1)), function(s) -log(1 + exp(-s) * (exp(-t) - 1)) / t)
print(c(upper(clayton(0.6), 0.74, 0.92), upper(gumbel(1.57), 0.74, 0.92), upper(frank(3.2), 0.74, 0.92)))
print(c(clayton(0.6)(0.74, 0.92), gumbel(1.57)(0.74, 0.92), upper(frank(-5), 0.3, 0.6)))
