/* The questions, as the page holds them: plain JSON, or gzip in base64. */

const CELLS = ["refused_wrong", "refused_right", "answered_wrong", "answered_right", "unscored"];
const CELL_WORDS = [
  "refused, and wrong when forced", "refused, though right when forced", "answered, wrong", "answered, right", "unscored",
];
const GRADES = ["correct", "incorrect", "refused", "unscored", "not asked"];

async function readData() {
  const script = byId("data");
  if (script.type === "application/json") return JSON.parse(script.textContent);
  if (typeof DecompressionStream === "undefined") throw new Error("old browser");
  const bytes = Uint8Array.from(atob(script.textContent.trim()), (c) => c.charCodeAt(0));
  script.textContent = "";
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
