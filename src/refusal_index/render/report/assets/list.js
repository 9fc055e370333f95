/* A list of any length of which only the rows in sight are in the page. */

const ROW = 56;
const SPARE = 6;

function virtualList({ list, rows, draw, open }) {
  let found = [];
  let active = 0;
  let opened = -1;
  const made = new Map();

  function render() {
    const first = Math.max(Math.floor(list.scrollTop / ROW) - SPARE, 0);
    const last = Math.min(Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE, found.length);
    for (const [place, row] of made) {
      if (place < first || place >= last) { row.remove(); made.delete(place); }
    }
    for (let place = first; place < last; place++) {
      if (!made.has(place)) made.set(place, rows.appendChild(place_row(place)));
    }
    for (const [place, row] of made) {
      row.classList.toggle("active", place === active);
      row.setAttribute("aria-selected", String(found[place] === opened));
    }
    if (made.has(active)) list.setAttribute("aria-activedescendant", `row-${active}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function place_row(place) {
    const row = draw(found[place]);
    row.id = `row-${place}`;
    row.className = "row";
    row.setAttribute("role", "option");
    row.setAttribute("aria-posinset", String(place + 1));
    row.setAttribute("aria-setsize", String(found.length));
    row.style.transform = `translateY(${place * ROW}px)`;
    row.addEventListener("click", () => choose(place));
    return row;
  }

  function choose(place) {
    active = place;
    opened = found[place];
    render();
    open(opened);
  }

  function move(place) {
    if (!found.length) return;
    active = Math.min(Math.max(place, 0), found.length - 1);
    const top = active * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    render();
  }

  const page = () => Math.max(Math.floor(list.clientHeight / ROW) - 1, 1);
  const keys = {
    ArrowDown: () => move(active + 1), ArrowUp: () => move(active - 1),
    PageDown: () => move(active + page()), PageUp: () => move(active - page()),
    Home: () => move(0), End: () => move(found.length - 1),
    Enter: () => found.length && choose(active), " ": () => found.length && choose(active),
  };
  list.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  list.addEventListener("scroll", render, { passive: true });
  new ResizeObserver(render).observe(list);

  return {
    set(questions) {
      found = questions;
      active = Math.max(found.indexOf(opened), 0);
      for (const row of made.values()) row.remove();
      made.clear();
      rows.replaceChildren();
      rows.style.height = `${found.length * ROW}px`;
      list.scrollTop = 0;
      if (!found.length) rows.append(element("p", { class: "empty" }, "No questions match."));
      move(active);
    },
    /* Open the question that is `step` further on; return whether there is one. */
    step(step) {
      const place = active + step;
      if (place < 0 || place >= found.length) return;
      move(place);
      choose(place);
    },
    closed() { opened = -1; render(); },
    focus() { list.focus({ preventScroll: true }); },
  };
}
