/* The calculator's page: fields in, numbers and a picture out. The numbers are those of refusal-index.js. */
(() => {
  "use strict";

  const { CELLS, LARGEST_COUNT, correctRateAt, countsOfRates, estimate, interval, marginsOf, questionsFor } = refusalIndex;
  const byId = (id) => document.getElementById(id);
  const form = byId("table");

  const CELL_WORDS = {
    refused_wrong: "refused and wrong when forced", refused_right: "refused but right when forced",
    answered_wrong: "answered and wrong", answered_right: "answered and right",
  };
  const UNDEFINED = {
    no_questions: "there is no question",
    nobody_refused: "no question was refused, so there are no refusals to judge",
    everybody_refused: "every question was refused, so the model made no choice that could be judged",
    all_wrong: "no question got a right answer, so no refusal could be a mistake",
    all_right: "every answer was right, even when forced, so no refusal could be justified",
  };
  const LESS_THAN_USUAL = 5;

  const whole = (number) => number.toLocaleString("en", { maximumFractionDigits: 0 });
  const rate = (number) => (Number.isNaN(number) ? "none" : number.toFixed(3));

  /* Fields */

  class BadField extends Error {
    constructor(id, message) {
      super(message);
      this.id = id;
    }
  }

  function numberIn(id, wanted) {
    const text = byId(id).value.trim();
    if (text === "") throw new BadField(id, `is missing: ${wanted}`);
    const plain = /^\d{1,3}(,\d{3})+$/.test(text) ? text.replaceAll(",", "") : text;
    if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain)) throw new BadField(id, `must be ${wanted}, got “${text}”`);
    return Number(plain);
  }

  function countIn(id) {
    const count = numberIn(id, "a whole number of questions");
    if (!Number.isInteger(count)) throw new BadField(id, `must be a whole number of questions, got ${count}; is it a rate?`);
    if (count < 0) throw new BadField(id, `must not be negative, got ${count}; was it made by subtracting two totals?`);
    if (count > LARGEST_COUNT) throw new BadField(id, `must be a count of at most 2**53, got ${count}`);
    return count;
  }

  function sizeIn(id) {
    const size = countIn(id);
    if (size === 0) throw new BadField(id, "must be at least 1, got 0; rates are shares of some questions");
    return size;
  }

  function rateIn(id) {
    const share = numberIn(id, "a number from 0 to 1, with a decimal point");
    if (!(share >= 0 && share <= 1)) throw new BadField(id, `must lie between 0 and 1, got ${share}; is it a percentage?`);
    return share;
  }

  function levelIn(id) {
    const level = numberIn(id, "a number between 0 and 1");
    if (!(level > 0 && level < 1)) throw new BadField(id, `must lie strictly between 0 and 1, got ${level}; is it a percentage?`);
    return level;
  }

  function halfWidthIn(id) {
    const width = numberIn(id, "a number above 0 and below 1");
    if (!(width > 0 && width < 1)) throw new BadField(id, `must be a number above 0 and below 1, got ${width}`);
    return width;
  }

  /* Read every field, so that every bad one is told at once; null where there is one. */
  function fieldsRead(readers) {
    const bad = [];
    const read = Object.fromEntries(Object.entries(readers).map(([id, reader]) => {
      try {
        return [id, reader(id)];
      } catch (error) {
        if (!(error instanceof BadField)) throw error;
        bad.push(error);
        return [id, null];
      }
    }));
    tellBad(bad);
    return bad.length ? null : read;
  }

  function tellBad(bad) {
    for (const field of form.querySelectorAll("input:not([type=radio])")) {
      const error = bad.find(({ id }) => id === field.id);
      const place = byId(`${field.id}-error`);
      place.textContent = error ? error.message : "";
      if (error) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  }

  const asked = { level: levelIn, half_width: halfWidthIn };

  function readCounts() {
    const read = fieldsRead({ ...Object.fromEntries(CELLS.map((cell) => [cell, countIn])), ...asked });
    return read && { ...read, counts: CELLS.map((cell) => read[cell]) };
  }

  function readRates() {
    byId("table-of-rates").textContent = "";
    const read = fieldsRead({ correct: rateIn, refusal_rate: rateIn, error_rate: rateIn, n: sizeIn, ...asked });
    if (read === null) return null;
    const { counts, problem, by } = countsOfRates({
      correct: read.correct, refusalRate: read.refusal_rate, errorRate: read.error_rate, n: read.n,
      attempted: byId("attempted").value !== "",
    });
    if (problem) {
      tellBad([new BadField("correct", `these rates fit no table of ${whole(read.n)} questions: ${problem}, by ${by}. `
        + "Check what each rate is a share of: mu is a share of all questions.")]);
      return null;
    }
    byId("table-of-rates").textContent = `The table: ${CELLS.map((cell, place) => `${whole(counts[place])} ${CELL_WORDS[cell]}`).join(", ")}.`;
    return { ...read, counts };
  }

  /* Numbers */

  /* A number as shown, with all its digits for who takes it from the page. */
  function shown(id, value, text) {
    const made = document.createElement("data");
    made.id = id;
    made.value = value;
    made.textContent = text;
    return made;
  }

  function tellEstimate(found, ends, level) {
    const undefinedHere = found.status === "undefined";
    byId("headline").replaceChildren("RI ", undefinedHere ? "undefined" : shown("estimate", found.estimate, found.estimate.toFixed(3)));
    const range = undefinedHere || ends === null ? [] : [
      shown("low", ends[0], ends[0].toFixed(3)), " to ", shown("high", ends[1], ends[1].toFixed(3)), ` (${Number((100 * level).toPrecision(6))}% interval)`,
    ];
    byId("range").replaceChildren(...range);
  }

  function cautionOf({ status, reason, counts, estimate: index }, ends) {
    if (status === "undefined") return `Undefined: ${UNDEFINED[reason]}.`;
    if (ends === null) return "The interval cannot be computed: the likelihood of these counts is flat to the last digit.";
    if (status === "boundary") {
      const empty = CELLS.filter((_, cell) => counts[cell] === 0).map((cell) => CELL_WORDS[cell]);
      return `At the boundary: no question was ${empty.join(" or ")}, so RI is exactly ${index}. Use the interval.`;
    }
    const few = CELLS.filter((_, cell) => counts[cell] < LESS_THAN_USUAL).map((cell) => CELL_WORDS[cell]);
    return few.length ? `Fewer than ${LESS_THAN_USUAL} questions were ${few.join(" or ")}: the interval is approximate.` : "";
  }

  function tellPlan(found, halfWidth, level) {
    const { n, reason } = questionsFor(found, halfWidth, level);
    const { refused, n: all } = marginsOf(found.counts);
    byId("plan").dataset.reason = reason ?? "";
    if (n === null) {
      const why = reason === "perfect_correlation" ? "an RI of exactly 1 or -1 has no standard error" : "RI is undefined";
      byId("plan").replaceChildren(`No number of questions for an interval of ±${halfWidth}: ${why}.`);
      return;
    }
    byId("plan").replaceChildren(
      `An interval of ±${halfWidth} needs about `, shown("questions", n, whole(n)), ` questions and ${whole(n * refused / all)} forced answers, at the rates and RI of this table.`,
      reason ? ` Fewer than ${LESS_THAN_USUAL} of them are expected in a cell, so RI may be exactly 1 or -1.` : "",
    );
  }

  function tellNumbers({ counts, rho, standardError }) {
    const { n, refused, answered, wrong } = marginsOf(counts);
    const right = counts[3];
    const rows = [
      ["n", "questions", whole(n)],
      ["r", "refused", rate(refused / n)],
      ["mu", "wrong when all are answered", rate(wrong / n)],
      ["c", "answered and right", rate(right / n)],
      ["C/A", "right, of those answered", rate(right / answered)],
      ["rho", "tetrachoric correlation", rho === null ? "none" : shown("rho", rho, rho.toFixed(3))],
      ["standard error", "of RI", standardError === null ? "none" : shown("standard_error", standardError, standardError.toPrecision(3))],
    ];
    byId("numbers").replaceChildren(...rows.map(([name, meaning, value]) => {
      const row = document.createElement("div");
      const [term, told] = [document.createElement("dt"), document.createElement("dd")];
      const small = document.createElement("small");
      small.textContent = meaning;
      term.append(name, " ", small);
      told.append(value);
      row.append(term, told);
      return row;
    }));
  }

  /* The picture */

  const EDGE = { left: 46, right: 14, top: 28, bottom: 44 };
  const RATES = Array.from({ length: 101 }, (_, place) => place / 100);

  function drawn(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /* The end of the axis of correct rates, a round step above the highest, and its ticks. */
  function axisTo(highest) {
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25].find((one) => highest <= 5 * one);
    const steps = Math.min(Math.ceil(highest / step + 0.2), Math.round(1 / step));
    return Array.from({ length: steps + 1 }, (_, place) => place * step);
  }

  function grid(at, ticks) {
    const percent = (share) => `${Number((100 * share).toPrecision(4))}%`;
    const [left, right, bottom, top] = [at.x(0), at.x(1), at.y(0), at.y(ticks.at(-1))];
    const parts = ticks.flatMap((tick) => [
      drawn("line", { class: "grid", x1: left, x2: right, y1: at.y(tick), y2: at.y(tick) }),
      drawn("text", { x: left - 7, y: at.y(tick) + 4, "text-anchor": "end" }, percent(tick)),
    ]);
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      parts.push(drawn("line", { class: "grid", x1: at.x(tick), x2: at.x(tick), y1: top, y2: bottom }));
      parts.push(drawn("text", { x: at.x(tick), y: bottom + 17, "text-anchor": tick === 1 ? "end" : "middle" }, percent(tick)));
    }
    parts.push(drawn("text", { class: "title", x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, "refused, of all questions"));
    parts.push(drawn("text", { class: "title", x: 2, y: 14 }, "right in the first pass, of all questions"));
    return parts;
  }

  function curves(found, ends, at, mu, top) {
    const path = (points) => points.map(([r, c]) => `${at.x(r).toFixed(2)},${at.y(c).toFixed(2)}`).join(" ");
    const curve = (rho) => RATES.map((r) => [r, correctRateAt(r, rho, mu)]);
    const right = 1 - mu;
    const parts = [
      drawn("polygon", { class: "impossible", points: path([[1 - top, top], [1, top], [1, 0]]) }),
      drawn("polyline", { class: "limit", points: path([[0, right], [1 - right, right], [1, 0]]) }),
      drawn("polyline", { class: "limit", points: path([[0, right], [1, 0]]) }),
    ];
    if (found.rho === null) return parts;
    if (ends) {
      const [low, high] = ends.map((end) => curve(2 * Math.sin(end * Math.asin(0.5))));
      parts.push(drawn("polygon", { class: "band", points: path([...low, ...high.reverse()]) }));
    }
    parts.push(drawn("polyline", { class: "curve", points: path(curve(found.rho)) }));
    return parts;
  }

  function drawPlane(found, ends) {
    const { n, refused, wrong } = marginsOf(found.counts);
    const [r, mu, c] = [refused, wrong, found.counts[3]].map((count) => count / n);
    const picture = byId("plane");
    const caption = byId("plane-caption");
    if (n === 0) {
      picture.replaceChildren();
      caption.textContent = "";
      return;
    }
    const width = Math.max(picture.clientWidth, 240);
    const height = Math.round(Math.min(0.62 * width, 420));
    const ticks = axisTo(Math.max(1 - mu, c));
    const top = ticks.at(-1);
    const at = {
      x: (share) => EDGE.left + share * (width - EDGE.left - EDGE.right),
      y: (share) => height - EDGE.bottom - (share / top) * (height - EDGE.top - EDGE.bottom),
    };
    const told = `Refused ${rate(r)}, right in the first pass ${rate(c)}, wrong when all are answered ${rate(mu)}.`;
    const svg = drawn("svg", { role: "img", "aria-label": `Accuracy-refusal plane. ${told}`, width, height, viewBox: `0 0 ${width} ${height}` });
    svg.append(...grid(at, ticks), ...curves(found, ends, at, mu, top), drawn("circle", { class: "point", cx: at.x(r), cy: at.y(c), r: 5 }));
    picture.replaceChildren(svg);
    caption.textContent = found.rho === null
      ? "The point of this table, between the lines of RI 1 (above) and RI 0 (below). It lies on every curve."
      : "The point of this table on the curve of its RI and error rate, with the curves of the interval shaded. Thin lines: RI 1 (above) and RI 0 (below). Grey: impossible, since more would be right than answered.";
  }

  /* The whole */

  let last = null;

  function forget() {
    last = null;
    const bad = [...form.querySelectorAll("[aria-invalid]")].map((field) => field.labels[0].textContent);
    byId("headline").textContent = `Check: ${bad.join("; ")}.`;
    for (const id of ["range", "caution", "plan", "numbers", "plane", "plane-caption"]) byId(id).replaceChildren();
  }

  /* The ends of the interval; null where there are none, or none that double precision can tell. */
  function endsOf(found, level) {
    try {
      return interval(found, level);
    } catch (error) {
      if (error instanceof RangeError) return null;
      throw error;
    }
  }

  function update() {
    const published = form.elements.kind.value === "rates";
    for (const [kind, hidden] of [["counts", published], ["rates", !published]]) {
      byId(`given-${kind}`).hidden = hidden;
      byId(`given-${kind}`).disabled = hidden;
    }
    const read = published ? readRates() : readCounts();
    if (read === null) return forget();
    const found = estimate(read.counts);
    const ends = endsOf(found, read.level);
    tellEstimate(found, ends, read.level);
    byId("caution").textContent = cautionOf(found, ends);
    byId("caution").dataset.reason = found.reason ?? "";
    tellPlan(found, read.half_width, read.level);
    tellNumbers(found);
    last = [found, ends];
    drawPlane(...last);
  }

  for (const field of form.querySelectorAll("input:not([type=radio])")) {
    const place = document.createElement("span");
    place.id = `${field.id}-error`;
    place.className = "error";
    field.setAttribute("aria-describedby", place.id);
    field.after(place);
  }
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", () => last && drawPlane(...last));
  update();
  document.documentElement.dataset.ready = "yes";
})();
