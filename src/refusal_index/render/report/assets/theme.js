/* Light or dark as the system has it, unless the switch says otherwise. */

const THEMES = ["system", "light", "dark"];

function stored(write) {
  // A page from a disk may have no storage.
  try {
    if (write !== undefined) localStorage.setItem("refusal-index-theme", write);
    return localStorage.getItem("refusal-index-theme");
  } catch {
    return null;
  }
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme-name").textContent = theme;
}

function startTheme() {
  let theme = THEMES.includes(stored()) ? stored() : "system";
  const button = byId("theme");
  button.hidden = false;
  setTheme(theme);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    stored(theme);
    setTheme(theme);
  });
}
