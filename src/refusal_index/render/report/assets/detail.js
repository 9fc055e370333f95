/* One question: what was asked, and the two replies under each prompt side by side. */

const narrow = matchMedia("(max-width: 56rem)");

function mark(cell) {
  return element("span", { class: `mark ${CELLS[cell]}`, title: CELL_WORDS[cell], role: "img", "aria-label": CELL_WORDS[cell] });
}

function text(data, number, name, attributes = {}) {
  const made = element(name, attributes);
  if (number < 0) return made;
  const cut = data.cuts[number];
  if (!cut) return show(made, data.texts[number]);
  const [length, head] = cut;
  const letters = Array.from(data.texts[number]);
  show(made, letters.slice(0, head).join(""));
  made.append(element("span", { class: "gap" }, `… ${thousands(length - letters.length)} of ${thousands(length)} characters left out …`));
  return show(made, letters.slice(head).join(""));
}

/* Rows of one variant that say the same are told once, with their number. */
function groupedRows(data, q, variant) {
  const { rows, questions } = data;
  const groups = new Map();
  for (let r = questions.start[q]; r < questions.start[q + 1]; r++) {
    if (rows.variant[r] !== variant) continue;
    const key = [rows.cell[r], rows.first[r], rows.forced[r], rows.firstReply[r], rows.forcedReply[r], rows.reason[r]].join();
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(r);
  }
  return [...groups.values()];
}

function reply(data, what, grade, number) {
  const head = element("div", { class: "what" }, element("span", {}, what), element("span", {}, GRADES[grade]));
  const box = number < 0
    ? element("div", { class: "reply none" }, grade === 4 ? "not asked" : "reply not included")
    : text(data, number, "div", { class: "reply" });
  return element("div", {}, head, box);
}

function variantBlock(data, run, variant, group, total) {
  const r = group[0];
  const { rows } = data;
  const name = shown("span", run.variants[variant]);
  const draws = total > 1 ? element("small", { class: "draws" }, group.length > 1
    ? `${group.length} of ${total} samples`
    : `sample ${rows.draw[r] + 1} of ${total}`) : null;
  const why = rows.reason[r] >= 0 ? shown("small", data.reasons[rows.reason[r]]) : null;
  return element("div", { class: "variant" },
    element("h4", {}, mark(rows.cell[r]), name, element("small", {}, CELL_WORDS[rows.cell[r]]), why, draws),
    element("div", { class: "replies" },
      reply(data, "first pass", rows.first[r], rows.firstReply[r]),
      reply(data, "when forced", rows.forced[r], rows.forcedReply[r])));
}

function button(label, words, act) {
  const made = element("button", { type: "button", "aria-label": words, title: words }, label);
  made.addEventListener("click", act);
  return made;
}

function fillDetail(data, q, dialog, { step, close }) {
  const { questions } = data;
  const run = data.runs[questions.run[q]];
  const facts = element("dl");
  const fact = (name, value) => value && facts.append(element("dt", {}, name), value);
  if (data.runs.length > 1) fact("run", shown("dd", run.label));
  if (questions.gold[q] >= 0) fact("right answer", text(data, questions.gold[q], "dd"));
  if (questions.topic[q] >= 0) fact("topic", shown("dd", data.topics[questions.topic[q]]));
  fact("id", shown("dd", questions.id[q]));
  const title = questions.text[q] >= 0
    ? text(data, questions.text[q], "h3", { id: "detail-title", tabindex: "-1" })
    : shown("h3", questions.id[q], { id: "detail-title", tabindex: "-1" });
  const blocks = run.variants.flatMap((_, variant) => {
    const groups = groupedRows(data, q, variant);
    const total = groups.reduce((sum, group) => sum + group.length, 0);
    return groups.map((group) => variantBlock(data, run, variant, group, total));
  });
  const keys = element("div", { class: "keys" },
    button("↑", "Previous question", () => step(-1)), button("↓", "Next question", () => step(1)),
    button("Close", "Close (Escape)", close));
  dialog.replaceChildren(element("div", { class: "top" }, element("small", {}, "question"), keys), title, facts, ...blocks);
  dialog.scrollTop = 0;
}
