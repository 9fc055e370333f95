r"""Sums of squares with fixed weights, and the chi-squared distribution that they are referred to.

Where k estimates rest on the same questions, their covariance is estimated from those questions too. Its inverse
stresses the directions with the least variance, which are the ones that are estimated worst: with 8 tables of 450
questions a statistic ``d' V^-1 d`` rejects a true hypothesis a third of the time. A sum of squares with weights that do
not depend on the correlations needs no inverse. If A is the covariance of the weighted deviations, it is distributed
as a sum of independent chi-squared variables with A's eigenvalues as factors, which has mean tr A and variance
2 tr A^2; the scaled chi-squared variable with these two moments is taken for it [1]_.

``tr A`` is a sum over questions and is estimated without bias; ``(tr A)^2`` and ``tr A^2`` are sums over pairs of
questions, and what a question makes with itself is left out of both, since it would stand for noise [2]_.

References
----------
.. [1] Box, G. E. P. (1954). Some theorems on quadratic forms applied in the study of analysis of variance problems, I.
   The Annals of Mathematical Statistics, 25, 290-302. :doi:`10.1214/aoms/1177728786`
.. [2] Chen, S. X. and Qin, Y.-L. (2010). A two-sample test for high-dimensional data with applications to gene-set
   testing. The Annals of Statistics, 38, 808-835. :doi:`10.1214/09-AOS716`
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from refusal_index.stats._ops import FloatArray


class Traces(NamedTuple):
    """What is known of the covariance A of the weighted deviations of b data sets; arrays of shape (b,).

    `trace` is tr A, `of_square` an estimate of tr A^2 without a question's product with itself, and `own` the sum of
    these products.
    """

    trace: FloatArray
    of_square: FloatArray
    own: FloatArray

    def degrees_of_freedom(self, most: ArrayLike) -> FloatArray:
        """Effective number of squares, from 1 to `most`."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (self.trace**2 - self.own) / self.of_square
        return np.asarray(np.clip(np.where(np.isnan(found), 1.0, found), 1.0, most))

    def scaled(self, sum_of_squares: FloatArray, most: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the statistic that is chi-squared, and its degrees of freedom; NaN where A is 0."""
        freedom = self.degrees_of_freedom(most)
        with np.errstate(invalid="ignore", divide="ignore"):
            statistic = np.where(self.trace > 0, sum_of_squares * freedom / self.trace, np.nan)
        return statistic, freedom

    def pvalue(self, sum_of_squares: FloatArray, most: ArrayLike) -> FloatArray:
        """Probability of a sum of squares as large."""
        statistic, freedom = self.scaled(sum_of_squares, most)
        return np.asarray(special.chdtrc(freedom, statistic))


def traces(deviations: FloatArray, counts: FloatArray) -> Traces:
    """Take the traces from what each question adds to the k weighted deviations.

    `deviations` has shape (b, k, m), one column a question or a pattern of outcomes, `counts` shape (b, m) says how
    many questions a column stands for.
    """
    squares = np.einsum("bkm,bkm->bm", deviations, deviations)
    covariance = (deviations * counts[:, np.newaxis]) @ np.swapaxes(deviations, 1, 2)
    own = np.sum(counts * squares**2, axis=1)
    of_square = np.einsum("bkl,bkl->b", covariance, covariance) - own
    return Traces(np.sum(counts * squares, axis=1), of_square, own)
