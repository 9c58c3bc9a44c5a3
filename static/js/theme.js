// Loaded in <head>, before anything is painted. The choice lives in a cookie, so the server knows it too.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const next = { auto: "light", light: "dark", dark: "auto" };

  function apply() {
    const chosen = root.dataset.theme || "auto";
    root.dataset.bsTheme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
    document.dispatchEvent(new CustomEvent("foundry:theme"));
  }

  function choose(theme) {
    root.dataset.theme = theme;
    document.cookie = `theme=${theme}; path=/; max-age=31536000; SameSite=Lax`;
    apply();
  }

  dark.addEventListener("change", apply);
  apply();

  addEventListener("DOMContentLoaded", () => {
    for (const form of document.querySelectorAll("form[data-theme-form]")) {
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const theme = event.submitter?.value || form.elements.theme?.value || next[root.dataset.theme || "auto"];
        choose(theme === "next" ? next[root.dataset.theme || "auto"] : theme);
        for (const word of document.querySelectorAll("[data-theme-word]")) word.textContent = root.dataset.theme;
        for (const button of form.querySelectorAll("button[aria-pressed]")) {
          button.setAttribute("aria-pressed", String(button.value === root.dataset.theme));
        }
      });
    }
  });
})();
