// What every page has: keyboard, relative times, confirmations, copy buttons.
(() => {
  const cookie = (name) => document.cookie.split("; ").find((part) => part.startsWith(name + "="))?.split("=")[1];
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable], .cm-editor, .chart");
  const visible = (element) => element && element.offsetParent !== null;

  // Keyboard ---------------------------------------------------------------------------------
  let pending = "";
  let pendingSince = 0;

  function rows() {
    return [...document.querySelectorAll("[data-rows] > li, [data-rows] > tr")].filter(visible);
  }

  function moveRow(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("selected"));
    const to = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    all[at]?.classList.remove("selected");
    to.classList.add("selected");
    to.scrollIntoView({ block: "nearest" });
    to.querySelector("a")?.focus({ preventScroll: true });
  }

  function moveChange(step) {
    const changes = [...document.querySelectorAll(".diff tr.change-start")].filter(visible);
    if (!changes.length) return false;
    const at = changes.findIndex((row) => row.classList.contains("here"));
    const to = changes[(at + step + changes.length) % changes.length];
    changes[at]?.classList.remove("here");
    to.classList.add("here");
    to.scrollIntoView({ block: "center" });
    return true;
  }

  function openHelp() {
    const help = document.getElementById("help");
    if (help.open) help.close();
    else help.showModal();
  }

  function press(key) {
    const destination = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    if (pending === "g" && Date.now() - pendingSince < 1500) {
      pending = "";
      if (destination) location.href = destination.href;
      return Boolean(destination);
    }
    if (key === "g") {
      [pending, pendingSince] = ["g", Date.now()];
      return true;
    }
    if (key === "?") return openHelp(), true;
    if (key === "/") {
      const search = document.querySelector("[data-search]");
      search?.focus();
      return Boolean(search);
    }
    if (key === "j" || key === "k") return moveRow(key === "j" ? 1 : -1), true;
    if (key === "n" || key === "p") return moveChange(key === "n" ? 1 : -1);
    const action = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!visible(action)) return false;
    if (action.matches("input, textarea, select")) action.focus();
    else action.click();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (cookie("keys") === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape" && !event.target.closest(".cm-editor")) event.target.blur();
      return;
    }
    if (press(event.key)) event.preventDefault();
  });

  // Relative times: the absolute one stays in the title ----------------------------------------
  function ago(element) {
    const seconds = Math.round((Date.now() - Date.parse(element.dateTime)) / 1000);
    if (Number.isNaN(seconds)) return;
    if (seconds < 10) element.textContent = "just now";
    else if (seconds < 90) element.textContent = `${seconds} s ago`;
    else if (seconds < 5400) element.textContent = `${Math.round(seconds / 60)} min ago`;
    else if (seconds < 129600) element.textContent = `${Math.round(seconds / 3600)} h ago`;
  }
  const refreshTimes = (root = document) => root.querySelectorAll("time[data-ago]").forEach(ago);
  setInterval(refreshTimes, 15000);

  // Banners about the service: asked for every ten seconds; when nobody answers, the page says that itself.
  async function refreshBanners() {
    const place = document.getElementById("banners");
    if (!place || document.hidden) return;
    const lost = document.getElementById("server-lost");
    try {
      const answer = await fetch(place.dataset.banners, { redirect: "manual" });
      if (answer.ok) place.innerHTML = await answer.text();
      lost.hidden = answer.status < 500;
    } catch {
      lost.hidden = false;
    }
  }
  setInterval(refreshBanners, 10000);

  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      await navigator.clipboard?.writeText(document.querySelector(copy.dataset.copy).textContent);
      copy.querySelector("span").textContent = "Copied";
    }
    if (event.target.closest("[data-help]")) openHelp();
    const close = event.target.closest("[data-close]");
    if (close) close.closest("dialog").close();
  });

  document.addEventListener("change", (event) => {
    const control = event.target.closest("[data-submit-on-change]");
    if (control) control.form.requestSubmit();
    const keys = event.target.closest("[data-keys-switch]");
    if (keys) document.cookie = `keys=${keys.checked ? "on" : "off"}; path=/; max-age=31536000; SameSite=Lax`;
  });

  addEventListener("DOMContentLoaded", () => {
    refreshTimes();
    const keys = document.querySelector("[data-keys-switch]");
    if (keys) keys.checked = cookie("keys") !== "off";
  });

  window.foundry = { refreshTimes };
})();
