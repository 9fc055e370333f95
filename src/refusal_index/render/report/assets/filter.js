/* Which questions are shown. Texts are searched once each, whatever the number of rows that hold them. */

const LENSES = [
  ["All", 0, "all"],
  ["Refused but right when forced", 1, "refused_right"],
  ["Confidently wrong", 2, "confidently_wrong"],
  ["Prompts disagree", 8, "divided"],
  ["Unscored", 4, "unscored"],
];

/* Return the words for a view of the questions. One answer under one prompt does not show confidence. */
function lensWords(data, words, name) {
  const { rows, runs } = data;
  const several = runs.some((run) => run.variants.length > 1) || rows.draw.some((draw) => draw !== rows.draw[0]);
  return name === "confidently_wrong" && !several ? "Wrong" : words;
}

function searcher(data) {
  let lower = null;
  return (words) => {
    if (!words) return null;
    lower ??= data.texts.map((text) => text.toLowerCase());
    return Uint8Array.from(lower, (text) => (text.includes(words) ? 1 : 0));
  };
}

/* Return the numbers of the questions that pass, in order. */
function filtered(data, chosen, search) {
  const { questions, rows } = data;
  const words = chosen.search.trim().toLowerCase();
  const hit = search(words);
  const has = (text) => text >= 0 && hit[text] === 1;
  const names = hit && data.topics.map((topic) => topic.toLowerCase().includes(words));
  const found = [];
  for (let q = 0; q < questions.id.length; q++) {
    if (chosen.lens && !(questions.flags[q] & chosen.lens)) continue;
    if (chosen.run >= 0 && questions.run[q] !== chosen.run) continue;
    if (chosen.topic >= 0 && questions.topic[q] !== chosen.topic) continue;
    let passed = hit && (has(questions.text[q]) || has(questions.gold[q]) || names[questions.topic[q]]
      || questions.id[q].toLowerCase().includes(words));
    const everyRow = passed || !hit;
    const variants = data.runs[questions.run[q]].variants;
    let any = false;
    for (let r = questions.start[q]; r < questions.start[q + 1] && !any; r++) {
      const first = r === questions.start[q] || rows.variant[r] !== rows.variant[r - 1];
      any = (first || chosen.draw < 0)
        && (chosen.variant === null || variants[rows.variant[r]] === chosen.variant)
        && (chosen.cell < 0 || rows.cell[r] === chosen.cell)
        && (chosen.first < 0 || rows.first[r] === chosen.first)
        && (chosen.forced < 0 || rows.forced[r] === chosen.forced)
        && (everyRow || has(rows.firstReply[r]) || has(rows.forcedReply[r]));
    }
    if (any) found.push(q);
  }
  if (chosen.order >= 0) found.sort((a, b) => questions.order[a] - questions.order[b]);
  return found;
}
