// Keeps the page up to date: asks for it anew and puts its main part in place of the old one. What is
// open stays open.
"use strict";
const PERIOD_MS = 2000;
const root = document.documentElement;

function stored(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

function setTheme(theme) {
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
}

setTheme(stored("theme"));
document.getElementById("theme").addEventListener("click", () => {
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(isDark ? "light" : "dark");
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it lasts as long as the page */ }
});

function replace(id, fresh) {
  const old = document.getElementById(id);
  const now = fresh.getElementById(id);
  if (!old || !now) throw new Error("the agent answers with something else");
  for (const before of old.querySelectorAll("details")) {
    const same = now.querySelector("#" + CSS.escape(before.id));
    if (same) same.open = before.open;
  }
  old.replaceWith(document.adoptNode(now));
}

async function refresh() {
  const fresh = document.getElementById("fresh");
  // Whoever selects a text wants to copy it.
  if (!String(getSelection())) {
    try {
      const answer = await fetch(location.pathname, { cache: "no-store" });
      if (!answer.ok) throw new Error("the agent answers " + answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      replace("agent", page);
      replace("main", page);
      root.dataset.refreshed = String(Number(root.dataset.refreshed || 0) + 1);
      fresh.textContent = "as of " + new Date().toLocaleTimeString();
      fresh.className = "";
    } catch (error) {
      fresh.textContent = "not up to date: " + error.message;
      fresh.className = "bad";
    }
  }
  setTimeout(refresh, PERIOD_MS);
}

setTimeout(refresh, PERIOD_MS);
