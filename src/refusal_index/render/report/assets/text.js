/* Text of others: shown as text, never as anything else. What a display would obey is made visible. */

const CONTROL = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const KEPT = new Set(["\n", "\t", "\u200c", "\u200d"]);
const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function code(character) {
  return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

/* Append text to an element whose direction is its own. */
function show(parent, text) {
  parent.setAttribute("dir", "auto");
  let start = 0;
  for (const match of text.matchAll(CONTROL)) {
    if (KEPT.has(match[0])) continue;
    parent.append(text.slice(start, match.index), element("span", { class: "control" }, code(match[0])));
    start = match.index + match[0].length;
  }
  parent.append(text.slice(start));
  return parent;
}

function shown(name, text, attributes = {}) {
  return show(element(name, attributes), text);
}

/* The same for places that hold no elements. */
function plain(text) {
  return text.replace(CONTROL, (c) => (c === "\n" || c === "\t" ? " " : KEPT.has(c) ? c : `⟨${code(c)}⟩`));
}

const thousands = (number) => number.toLocaleString("en");
