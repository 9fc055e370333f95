/* Start: theme, printing, and the questions once they are read. */

function options(select, entries) {
  select.replaceChildren(...entries.map(([value, words]) => element("option", { value: String(value), dir: "auto" }, words)));
}

function fillFilters(fields) {
  for (const [field, { words, any, shown }] of Object.entries(fields)) {
    options(byId(field), [[-1, any], ...words.map((word, place) => [place, word])]);
    byId(`field-${field}`).hidden = !shown;
  }
}

function startLenses(data, chosen) {
  let lens = 0;
  const counts = LENSES.map(([, bit]) => data.questions.flags.reduce((sum, flags) => sum + (!bit || flags & bit ? 1 : 0), 0));
  const buttons = LENSES.map(([words, bit, name], place) => {
    const shownWords = lensWords(data, words, name);
    const made = element("button", { type: "button", "aria-pressed": String(!bit), "data-lens": String(bit) }, shownWords, element("b", {}, thousands(counts[place])));
    made.hidden = bit > 0 && counts[place] === 0;
    made.addEventListener("click", () => { set(bit); chosen(); });
    return made;
  });
  function set(bit) {
    lens = bit;
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.lens === String(bit))));
  }
  byId("lenses").append(...buttons);
  return { get: () => lens, set };
}

function drawRow(data, q) {
  const { questions, rows } = data;
  const title = questions.text[q] >= 0 ? data.texts[questions.text[q]] : questions.id[q];
  const under = [
    data.runs.length > 1 ? data.runs[questions.run[q]].label : "",
    questions.topic[q] >= 0 ? data.topics[questions.topic[q]] : "",
    questions.gold[q] >= 0 ? data.texts[questions.gold[q]].slice(0, 80) : "",
  ].filter(Boolean);
  const marks = element("span", { class: "marks" });
  let last = -1;
  for (let r = questions.start[q]; r < questions.start[q + 1]; r++) {
    if (rows.variant[r] === last) continue;
    last = rows.variant[r];
    marks.append(mark(rows.cell[r]));
  }
  const line = element("span", { class: "under" });
  under.forEach((part, i) => line.append(i ? " · " : "", shown("bdi", part)));
  return element("div", {}, shown("span", title.slice(0, 300), { class: "text" }), line, marks);
}

function startDetail(data, list) {
  const dialog = byId("detail");
  const panes = dialog.parentElement;
  const close = () => dialog.close();
  dialog.addEventListener("close", () => {
    panes.classList.remove("open");
    list().closed();
    list().focus();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && dialog.open && !narrow.matches) close();
  });
  const step = (by) => list().step(by);
  return (q) => {
    fillDetail(data, q, dialog, { step, close });
    if (dialog.open) return;
    panes.classList.add("open");
    if (narrow.matches) dialog.showModal();
    else {
      dialog.show();
      list().focus();
    }
  };
}

function startBrowser(data) {
  const fields = choices(data);
  fillFilters(fields);
  const search = searcher(data);
  const form = byId("filters");
  const total = thousands(data.questions.id.length);
  const leftOut = element("p", { class: "note", id: "left-out", role: "status", hidden: "" });
  byId("count").after(leftOut);
  const tellLeftOut = (unknown) => {
    const told = plain(unknown.map((one) => one.join("=")).join(", "));
    leftOut.hidden = !unknown.length;
    leftOut.textContent = unknown.length ? `Ignored in the link because this report does not have it: ${told.slice(0, 200)}.` : "";
  };
  let list = null;
  const state = () => ({
    search: byId("search").value.trim(), lens: lenses.get(),
    chosen: Object.fromEntries(Object.keys(fields).map((field) => [field, Number(byId(field).value)])),
  });
  const update = () => {
    const { search: words, lens, chosen } = state();
    const variant = fields.variant.names[chosen.variant] ?? null;
    const found = filtered(data, { ...chosen, search: words, lens, variant }, search);
    byId("count").textContent = `${thousands(found.length)} of ${total} questions`;
    list.set(found);
    const address = addressOf(fields, state());
    document.querySelectorAll(".to-questions").forEach((link) => link.setAttribute("href", address));
  };
  const take = ({ search: words, lens, chosen, unknown }) => {
    tellLeftOut(unknown);
    byId("search").value = words;
    lenses.set(lens);
    for (const [field, place] of Object.entries(chosen)) byId(field).value = String(place);
    update();
  };
  const { follow, remember } = startAddress(fields, { state, take, come: () => {
    byId("questions").scrollIntoView();
    list.focus();
  } });
  const chosen = (by) => { tellLeftOut([]); update(); remember(by); };
  const lenses = startLenses(data, () => chosen("lens"));
  const open = startDetail(data, () => list);
  list = virtualList({ list: byId("list"), rows: byId("rows"), draw: (q) => drawRow(data, q), open });
  let waiting = 0;
  form.addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => chosen(event.target.id), 60);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { lenses.set(0); chosen("reset"); }));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    byId("search").focus();
  });
  byId("browser").hidden = false;
  const isSent = location.hash.startsWith(`${PLACE}?`);
  if (!follow()) take(readAddress(fields, ""));
  if (isSent) byId("questions").scrollIntoView();
}

function startPrinting() {
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.run:not([open]), details.fold:not([open])")];
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
}

/* A link into a part that is folded opens it. */
function startLinks() {
  const unfold = () => {
    const target = location.hash.length > 1 ? byId(location.hash.slice(1)) : null;
    let folded = target?.closest("details:not([open])");
    if (!folded) return;
    for (; folded; folded = target.closest("details:not([open])")) folded.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
}

startTheme();
startPrinting();
startLinks();
byId("reading").hidden = false;
readData().then(
  (data) => { byId("reading").hidden = true; startBrowser(data); document.documentElement.dataset.ready = "yes"; },
  () => {
    byId("reading").textContent = "The questions could not be read: this requires a browser from 2023 or later. "
      + "Everything above is complete; the same rows are in outcomes.parquet.";
    document.documentElement.dataset.ready = "no";
  },
);
