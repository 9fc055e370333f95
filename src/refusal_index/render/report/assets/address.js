/* The filters in the page's address: a view is sent by its link, and the back button leads to the one before. */

const PLACE = "#questions";

/* What can be chosen, by field: names as they stand in an address, words as they stand on the page. A field that leaves
   no choice is not shown. */
function choices(data) {
  const same = (names) => ({ names, words: names.map(plain), any: "all", shown: names.length > 1 });
  return {
    run: { ...same(data.runs.map((_, place) => String(place + 1))), words: data.runs.map((run) => plain(run.label)) },
    variant: same([...new Set(data.runs.flatMap((run) => run.variants))]),
    cell: { ...same(CELLS), words: CELL_WORDS },
    first: same(GRADES.slice(0, 4)),
    forced: same(GRADES),
    topic: same(data.topics),
    draw: { ...same(["first"]), words: ["first of each question"], shown: data.rows.draw.some((draw) => draw !== data.rows.draw[0]) },
    order: { ...same(["file"]), words: ["position in the file"], any: "most notable first", shown: true },
  };
}

/* The filters are a form's fields, by name; the words searched for and the lens stand beside them. */
function addressOf(fields, { search, lens, chosen }) {
  const told = new URLSearchParams();
  if (lens) told.set("look", LENSES.find(([, bit]) => bit === lens)[2]);
  if (search) told.set("search", search);
  for (const [field, { names, shown }] of Object.entries(fields)) {
    if (shown && chosen[field] >= 0) told.set(field, names[chosen[field]]);
  }
  return told.size ? `${PLACE}?${told}` : PLACE;
}

/* What an address says; null where it is of another place on the page. What it names and the page does not have is left
   out, and said: addresses come from anywhere. */
function readAddress(fields, address) {
  if (address !== "" && address.split("?")[0] !== PLACE) return null;
  const told = new URLSearchParams(address.slice(PLACE.length));
  const chosen = Object.fromEntries(Object.entries(fields).map(([field, { names, shown }]) =>
    [field, shown && told.has(field) ? names.indexOf(told.get(field)) : -1]));
  const lens = LENSES.find(([, , name]) => name === told.get("look"));
  const known = { ...Object.fromEntries(Object.entries(fields).map(([field, { names }]) => [field, names])),
    look: LENSES.map(([, , name]) => name), search: [told.get("search")] };
  const unknown = [...told].filter(([key, value]) => !Object.hasOwn(known, key) || !known[key].includes(value));
  return { search: told.get("search") ?? "", lens: lens ? lens[1] : 0, chosen, unknown };
}

/* Return what follows the address, also later on, and what tells it of a choice, by its field. Every choice is a step that
   can be gone back; the letters of a search are one. What the page does not have goes from the address. */
function startAddress(fields, { state, take, come }) {
  let last = null;
  const remember = (by) => {
    const address = addressOf(fields, state());
    const step = by !== "search" || last !== "search";
    last = by;
    if (address !== location.hash) history[step ? "pushState" : "replaceState"](null, "", address);
  };
  const follow = () => {
    const told = readAddress(fields, location.hash);
    last = null;
    if (told) take(told);
    if (told?.unknown.length) history.replaceState(null, "", addressOf(fields, state()));
    return told !== null;
  };
  addEventListener("popstate", follow);
  addEventListener("click", (event) => {
    const link = event.target.closest(`a[href^="${PLACE}"]`);
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    take(readAddress(fields, link.getAttribute("href")));
    remember("link");
    come();
  });
  return { follow, remember };
}
