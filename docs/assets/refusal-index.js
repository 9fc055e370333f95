/* The Refusal Index of a 2x2 table: numbers in, numbers out. It does for one table what refusal_index.stats does for
   many, by the plainer ways that a single table allows: roots are bisected. A count or a cell is an array in the order
   refused_wrong, refused_right, answered_wrong, answered_right. */
const refusalIndex = (() => {
  "use strict";

  const CELLS = ["refused_wrong", "refused_right", "answered_wrong", "answered_right"];
  const LARGEST_COUNT = 2 ** 53;
  /* A threshold of exactly 0 is replaced by one that behaves the same and can be divided by. */
  const TINY = 1e-200;
  /* Beyond 40 the normal tail is 0, as at infinity. */
  const LARGEST_THRESHOLD = 40;
  /* The square of such a cell can still be divided by. */
  const SMALLEST_CELL = 1e-150;
  /* A cell that is the difference of two probabilities is rounded by some 1e-16. */
  const RESOLVED_CELL = 1e-14;
  /* tanh(20) is 1 to the last digit. */
  const LARGEST_Z = 20;
  /* So many times beyond the wanted fall the likelihood's slopes say little about where the limit is. */
  const HOPELESS_FALL = 3;

  /* The normal distribution */

  const density = (x) => Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);
  const cumulative = (x) => upperTail(-x);

  /* The tail keeps its digits however far out: a series near 0, a continued fraction beyond. */
  function upperTail(x) {
    if (x < 0) return 1 - upperTail(-x);
    if (x < 1.5) {
      let term = x;
      let sum = x;
      for (let odd = 3; term > 1e-17 * sum; odd += 2) sum += term *= (x * x) / odd;
      return 0.5 - density(x) * sum;
    }
    let rest = x;
    for (let place = Math.ceil(20 + 450 / (x * x)); place > 0; place--) rest = x + place / rest;
    return density(x) / rest;
  }

  /* Newton's method on the logarithm of the tail, which is concave, from beyond: it cannot overshoot. */
  function upperQuantile(tail) {
    if (tail > 0.5) return -upperQuantile(1 - tail);
    if (tail === 0) return LARGEST_THRESHOLD;
    let x = Math.sqrt(-2 * Math.log(2 * tail));
    for (let step = 1, left = 60; left > 0 && Math.abs(step) > 1e-14; left--) {
      const here = upperTail(x);
      step = Math.log(here / tail) * here / density(x);
      x += step;
    }
    return x;
  }

  /* Half-width of a two-sided normal interval in standard errors. */
  const normalQuantile = (level) => upperQuantile((1 - level) / 2);

  /* The bivariate normal distribution, with t = sqrt((1 - rho) / (1 + rho)) = exp(-atanh(rho)) */

  /* Nodes and weights on [-1, 1]: the zeros of a Legendre polynomial, by Newton's method. */
  function gaussLegendre(size) {
    return Array.from({ length: size }, (_, place) => {
      let x = Math.cos(Math.PI * (place + 0.75) / (size + 0.5));
      let slope = 1;
      for (let round = 0; round < 8; round++) {
        let [before, value] = [1, x];
        for (let n = 2; n <= size; n++) [before, value] = [value, ((2 * n - 1) * x * value - (n - 1) * before) / n];
        slope = size * (x * value - before) / (x * x - 1);
        x -= value / slope;
      }
      return [x, 2 / ((1 - x * x) * slope * slope)];
    });
  }

  const NODES = gaussLegendre(48);

  /* Owen's T for 0 <= a <= 1. */
  function owensT(h, a) {
    if (h > LARGEST_THRESHOLD) return 0;
    let sum = 0;
    for (const [node, weight] of NODES) {
      const x = 0.5 * a * (node + 1);
      sum += weight * Math.exp(-0.5 * h * h * (1 + x * x)) / (1 + x * x);
    }
    return 0.5 * a * sum / (2 * Math.PI);
  }

  /* Half the tail beyond h > 0, less Owen's T: the share of it above a ray of slope a. */
  function aboveRay(h, a) {
    if (a < 0) return upperTail(h) - aboveRay(h, -a);
    if (a <= 1) return 0.5 * upperTail(h) - owensT(h, a);
    return owensT(a * h, 1 / a) - upperTail(a * h) * (0.5 - upperTail(h));
  }

  function orthantBeyondZero(h, k, t) {
    const gap = (k - h) * (1 + t * t) / (2 * t);
    return aboveRay(h, gap / h + t) + aboveRay(k, t - gap / k);
  }

  /* P(X > h, Y > k) for finite thresholds of any sign. */
  function orthant(h, k, t) {
    const x = Math.max(Math.abs(h), TINY);
    const y = Math.max(Math.abs(k), TINY);
    const inner = orthantBeyondZero(x, y, h < 0 !== k < 0 ? 1 / t : t);
    if (h < 0) return k < 0 ? 1 - upperTail(x) - (upperTail(y) - inner) : upperTail(y) - inner;
    return k < 0 ? upperTail(x) - inner : inner;
  }

  const spreadOf = (t) => 2 * t / (1 + t * t);

  function bivariateDensity(h, k, t) {
    const gap = (k - h) / spreadOf(t);
    return Math.exp(-0.5 * (gap * gap + h * k * (1 + t * t))) / (2 * Math.PI * spreadOf(t));
  }

  /* The estimate */

  const spearman = (rho) => Math.asin(rho / 2) / Math.asin(0.5);

  function marginsOf([refusedWrong, refusedRight, answeredWrong, answeredRight]) {
    return {
      n: refusedWrong + refusedRight + answeredWrong + answeredRight,
      refused: refusedWrong + refusedRight, answered: answeredWrong + answeredRight,
      wrong: refusedWrong + answeredWrong, right: refusedRight + answeredRight,
    };
  }

  /* Where a share of the upper side is cut off, to the last digit of the smaller side. */
  const threshold = (upper, lower) => (upper <= lower ? upperQuantile(upper / (upper + lower)) : -upperQuantile(lower / (upper + lower)));

  function thresholds(counts) {
    const { refused, answered, wrong, right } = marginsOf(counts);
    return [threshold(refused, answered), threshold(wrong, right)];
  }

  function bisected(isBelow, low, high) {
    while (high - low > 1e-14 * (1 + Math.abs(low))) {
      const middle = 0.5 * (low + high);
      if (isBelow(middle)) low = middle;
      else high = middle;
    }
    return 0.5 * (low + high);
  }

  /* atanh(rho) of a table without an empty cell: where the modelled log odds ratio is the observed one. */
  function latentZ(counts) {
    const [n11, n10, n01, n00] = counts;
    const wanted = Math.log((n11 * n00) / (n10 * n01));
    if (wanted === 0) return 0;
    const [h, k] = thresholds(counts);
    /* With both thresholds above 0 no cell is a difference of large numbers. */
    const sign = h < 0 !== k < 0 ? -1 : 1;
    const [x, y] = [Math.max(Math.abs(h), TINY), Math.max(Math.abs(k), TINY)];
    const [tailX, tailY] = [upperTail(x), upperTail(y)];
    const z = bisected((here) => {
      const p11 = orthantBeyondZero(x, y, Math.exp(-here));
      const [a, b, c] = [p11, tailX - p11, tailY - p11].map((cell) => Math.max(cell, SMALLEST_CELL));
      return Math.log(a * (1 - tailX - (tailY - p11)) / (b * c)) < sign * wanted;
    }, -LARGEST_Z, LARGEST_Z);
    return sign * z;
  }

  /* Standard error of rho, both thresholds estimated: of the influence of a question in each cell. */
  function errorOfRho(counts, z) {
    const { n, refused, wrong } = marginsOf(counts);
    const [h, k] = thresholds(counts);
    const t = Math.exp(-z);
    const [rho, spread] = [Math.tanh(z), spreadOf(t)];
    const [alpha, beta] = [cumulative((rho * h - k) / spread), cumulative((rho * k - h) / spread)];
    const centre = (counts[0] - alpha * refused - beta * wrong) / n;
    const influence = [1 - alpha - beta - centre, -alpha - centre, -beta - centre, -centre];
    const total = counts.reduce((sum, count, cell) => sum + count * influence[cell] ** 2, 0);
    return Math.sqrt(total) / n / bivariateDensity(h, k, t);
  }

  function whyUndefined(counts) {
    const { n, refused, answered, wrong, right } = marginsOf(counts);
    const margins = { no_questions: n, nobody_refused: refused, everybody_refused: answered, all_wrong: right, all_right: wrong };
    return Object.keys(margins).find((reason) => margins[reason] === 0);
  }

  /* Estimate, rho and standardError are null where there are none, and z is then rho's sign, or null. */
  function estimate(counts) {
    const nothing = { counts, estimate: null, rho: null, z: null, standardError: null };
    const undefinedBecause = whyUndefined(counts);
    if (undefinedBecause) return { ...nothing, status: "undefined", reason: undefinedBecause };
    const empty = CELLS.filter((_, cell) => counts[cell] === 0);
    if (empty.length) {
      const end = counts[1] === 0 || counts[2] === 0 ? 1 : -1;
      return { ...nothing, estimate: end, rho: end, status: "boundary", reason: `zero_cell:${empty.join("+")}` };
    }
    const z = latentZ(counts);
    const rho = Math.tanh(z);
    const standardError = errorOfRho(counts, z) * 6 / (Math.PI * Math.sqrt(4 - rho * rho));
    return { counts, estimate: spearman(rho), rho, z, standardError, status: "ok", reason: null };
  }

  /* The profile interval */

  /* The log-likelihood at a place (h, k, z): how far below its maximum, and its slopes and curvatures in h and k. */
  function likelihood(counts, [h, k, z]) {
    const n = marginsOf(counts).n;
    const t = Math.exp(-z);
    const [spread, rho] = [spreadOf(t), Math.tanh(z)];
    const [r, mu, both] = [upperTail(h), upperTail(k), orthant(h, k, t)];
    const cells = [both, r - both, mu - both, 1 - r - (mu - both)].map((cell) => Math.max(cell, SMALLEST_CELL));
    const fall = counts.reduce((sum, count, cell) => (count ? sum + count * Math.log(count / (n * cells[cell])) : sum), 0);

    const [rH, muK] = [-density(h), -density(k)];
    const [pH, pK] = [rH * cumulative((rho * h - k) / spread), muK * cumulative((rho * k - h) / spread)];
    const joint = bivariateDensity(h, k, t);
    const pZ = spread * spread * joint;
    const [aH, aK] = [rH - pH, muK - pK];
    const w = counts.map((count, cell) => count / cells[cell]);
    const v = w.map((weight, cell) => weight / cells[cell]);
    const contrast = w[0] - w[1] - w[2] + w[3];
    return {
      rootFall: Math.sqrt(2 * Math.max(fall, 0)),
      h: contrast * pH + (w[1] - w[3]) * rH,
      k: contrast * pK + (w[2] - w[3]) * muK,
      hh: -contrast * (h * pH + rho * joint) - (w[1] - w[3]) * h * rH - (v[0] + v[2]) * pH ** 2 - (v[1] + v[3]) * aH ** 2,
      kk: -contrast * (k * pK + rho * joint) - (w[2] - w[3]) * k * muK - (v[0] + v[1]) * pK ** 2 - (v[2] + v[3]) * aK ** 2,
      hk: contrast * joint - v[0] * pH * pK + v[1] * aH * pK + v[2] * pH * aK - v[3] * aH * aK,
      hz: -contrast * joint * (h - rho * k) - pZ * ((v[0] + v[2]) * pH - (v[1] + v[3]) * aH),
      kz: -contrast * joint * (k - rho * h) - pZ * ((v[0] + v[1]) * pK - (v[2] + v[3]) * aK),
    };
  }

  /* The step in h and k along which the slopes change by minus the given ones. */
  function marginsStep(point, slopeH, slopeK) {
    const determinant = point.hh * point.kk - point.hk * point.hk;
    return [(point.hk * slopeK - point.kk * slopeH) / determinant, (point.hk * slopeH - point.hh * slopeK) / determinant];
  }

  /* Take a step, halved until the root of the fall is at most the given one; null if that does not help. */
  function dampedMove(counts, place, step, largestFall) {
    for (let share = 1, left = 30; left > 0; left--, share /= 2) {
      const moved = place.map((x, axis) => x + share * step[axis]);
      if (Math.abs(moved[2]) > LARGEST_Z) continue;
      const point = likelihood(counts, moved);
      if (point.rootFall <= largestFall) return { place: moved, point };
    }
    return null;
  }

  /* The highest likelihood at a fixed z: Newton's method, which concavity in h and k makes safe. */
  function climbed(counts, place) {
    let here = { place, point: likelihood(counts, place) };
    for (let left = 50; left > 0; left--) {
      const { h, k, hh, kk, hk } = here.point;
      if (!(hh < 0 && hh * kk > hk * hk)) break;
      const [stepH, stepK] = marginsStep(here.point, h, k);
      const moved = dampedMove(counts, here.place, [stepH, stepK, 0], here.point.rootFall);
      if (moved === null) break;
      here = moved;
      if (h * stepH + k * stepK < 1e-10) break;
    }
    return here;
  }

  /* Where the highest likelihood has fallen as far as wanted: walk along its ridge until it has, then close in. */
  function limit(counts, start, outward, rootChi2) {
    let here = climbed(counts, start);
    const inside = here.point.rootFall < rootChi2;
    const dz = 0.5 * (inside ? outward : -outward);
    let there = here;
    do {
      here = there;
      if (Math.abs(here.place[2] + dz) > LARGEST_Z) return Math.sign(dz) * LARGEST_Z;
      const [alongH, alongK] = marginsStep(here.point, here.point.hz, here.point.kz);
      const reach = Math.max(HOPELESS_FALL * rootChi2, here.point.rootFall);
      const moved = dampedMove(counts, here.place, [alongH * dz, alongK * dz, dz], reach);
      if (moved === null) throw new RangeError("the likelihood of these counts is flat to the last digit");
      there = climbed(counts, moved.place);
    } while ((there.point.rootFall < rootChi2) === inside);
    const between = (z) => {
      const share = (z - here.place[2]) / (there.place[2] - here.place[2]);
      return here.place.map((x, axis) => (axis === 2 ? z : x + share * (there.place[axis] - x)));
    };
    const falls = (z) => climbed(counts, between(z)).point.rootFall < rootChi2;
    const rising = there.place[2] > here.place[2] ? inside : !inside;
    return bisected((z) => falls(z) === rising, ...[here.place[2], there.place[2]].sort((a, b) => a - b));
  }

  /* The limit other than the estimate where a cell is empty: one-sided, of the empty cell's Poisson distribution. */
  function boundaryLimit(counts, rho, level) {
    const rootChi2 = Math.sqrt(-2 * Math.log1p(-level));
    const filled = counts.map((count) => count || rootChi2 * rootChi2 / 2);
    return Math.tanh(limit(counts, [...thresholds(filled), latentZ(filled)], -rho, rootChi2));
  }

  /* Ends of the profile interval of the index; null where it is undefined. */
  function interval({ counts, status, rho, z }, level) {
    if (status === "undefined") return null;
    if (status === "boundary") {
      const other = spearman(boundaryLimit(counts, rho, level));
      return [Math.min(rho, other), Math.max(rho, other)];
    }
    const best = [...thresholds(counts), z];
    return [-1, 1].map((outward) => spearman(Math.tanh(limit(counts, best, outward, normalQuantile(level)))));
  }

  /* What else the page tells */

  /* Questions until the interval is expected to be no wider, if a run finds what this table shows. */
  function questionsFor({ counts, standardError, status, reason }, halfWidth, level) {
    const n = marginsOf(counts).n;
    if (status === "undefined") return { n: null, reason };
    if (status === "boundary" || Math.min(...counts) / n <= RESOLVED_CELL) return { n: null, reason: "perfect_correlation" };
    const questions = Math.ceil((normalQuantile(level) * standardError * Math.sqrt(n) / halfWidth) ** 2);
    const few = Math.min(...counts) * (questions / n) < 5;
    return { n: questions, reason: few ? "expected_cell_below_5" : null };
  }

  /* Share answered right at a refusal rate, of a model with this rho and error rate. */
  function correctRateAt(refusalRate, rho, errorRate) {
    const clipped = (x) => Math.min(Math.max(x, -LARGEST_THRESHOLD), LARGEST_THRESHOLD);
    const t = Math.min(Math.max(Math.sqrt((1 - rho) / (1 + rho)), 1e-100), 1e100);
    return Math.max(orthant(clipped(-upperQuantile(refusalRate)), clipped(-upperQuantile(errorRate)), t), 0);
  }

  /* The nearest whole number, of two the even one, as Python rounds. */
  function rounded(x) {
    const below = Math.floor(x);
    if (x - below !== 0.5) return Math.round(x);
    return below % 2 ? below + 1 : below;
  }

  /* The table of published rates; null where none has them. */
  function countsOfRates({ correct, refusalRate, errorRate, n, attempted }) {
    const refused = rounded(refusalRate * n);
    const right = rounded((1 - errorRate) * n);
    const answeredRight = rounded(correct * (attempted ? n - refused : n));
    const counts = [refused - right + answeredRight, right - answeredRight, n - refused - answeredRight, answeredRight];
    const problems = [
      "more right answers to refused questions than refusals",
      "fewer right under forced answering than in the first pass",
      "more right than answered",
    ];
    const wrong = counts.findIndex((count) => count < 0);
    return wrong < 0 ? { counts } : { problem: problems[wrong], by: -counts[wrong] };
  }

  return {
    CELLS, LARGEST_COUNT, correctRateAt, countsOfRates, estimate, interval, marginsOf, normalQuantile, orthant, questionsFor,
  };
})();
