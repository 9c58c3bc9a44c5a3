// Reviewing by keyboard: decisions that need a reason ask for it first; rows are ticked with s.
(() => {
  const reason = document.getElementById("reason");
  let intended = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-needs-reason]");
    if (!button || reason.value.trim()) return;
    event.preventDefault();
    intended = button;
    reason.placeholder = `Why? Then Ctrl Enter: ${button.textContent.trim().toLowerCase()}`;
    reason.focus();
  });

  reason?.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const button = intended || reason.form.querySelector("[data-key=a]:not([disabled])");
    if (button) reason.form.requestSubmit(button);
  });

  // m goes to the entry to merge into; Enter there merges.
  document.getElementById("into")?.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    event.target.parentElement.querySelector("button").click();
  });

  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-tick-all]")) return;
    for (const box of document.querySelectorAll("[name=entry]")) box.checked = event.target.checked;
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "s" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select")) return;
    const box = document.querySelector("tr.selected [name=entry]");
    if (box) box.checked = !box.checked;
  });
})();
