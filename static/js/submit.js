// The submission page: CodeMirror over the textarea, upload, drag and drop, live check of the contract.
(() => {
  const nonce = document.currentScript.nonce;
  const form = document.getElementById("submit-form");
  const area = form.elements.source;
  const frame = document.getElementById("editor");
  const check = document.getElementById("check");
  const phone = matchMedia("(max-width: 48rem)").matches;
  const { EditorView, EditorState, Compartment } = CM;
  const look = new Compartment();
  let timer = 0;
  let view = null;

  const theme = () => (document.documentElement.dataset.bsTheme === "dark"
    ? CM.oneDark : CM.syntaxHighlighting(CM.defaultHighlightStyle));

  function askForCheck() {
    clearTimeout(timer);
    timer = setTimeout(() => htmx.trigger(check, "check"), 600);
  }

  function changed(update) {
    if (!update.docChanged) return;
    area.value = update.state.doc.toString();
    askForCheck();
  }

  function mount() {
    view = new EditorView({
      doc: area.value,
      parent: frame.querySelector("[data-editor]"),
      extensions: [
        EditorView.cspNonce.of(nonce),
        CM.lineNumbers(), CM.history(), CM.drawSelection(), CM.highlightActiveLine(), CM.bracketMatching(),
        CM.indentOnInput(), CM.indentUnit.of("    "), CM.closeBrackets(), CM.highlightSelectionMatches(),
        CM.python(), CM.lintGutter(), look.of(theme()),
        CM.keymap.of([{ key: "Mod-Enter", run: () => (form.requestSubmit(), true) },
          ...CM.closeBracketsKeymap, ...CM.defaultKeymap, ...CM.historyKeymap, ...CM.searchKeymap]),
        EditorView.contentAttributes.of({ "aria-label": "Source of the task", tabindex: "0" }),
        EditorView.updateListener.of(changed),
      ],
    });
    area.hidden = true;
    document.addEventListener("foundry:theme", () => view.dispatch({ effects: look.reconfigure(theme()) }));
  }

  function setSource(text) {
    area.value = text;
    if (view) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    else askForCheck();
  }

  // Problems come with the check's fragment, as data; at a line they are shown at the line.
  function mark() {
    const data = document.getElementById("check-problems");
    if (!view || !data) return;
    const { doc } = view.state;
    const marks = JSON.parse(data.textContent)
      .filter((problem) => problem.line && problem.line <= doc.lines)
      .map(({ line, message, severity }) => ({ from: doc.line(line).from, to: doc.line(line).to, severity, message }));
    view.dispatch(CM.setDiagnostics(view.state, marks));
  }

  async function take(file) {
    if (!file) return;
    if (file.size > 65536) {
      document.getElementById("upload-note").textContent = `${file.name} is ${Math.ceil(file.size / 1024)} KiB; at most 64 KiB are taken.`;
      return;
    }
    document.getElementById("upload-note").textContent = "";
    setSource(await file.text());
    if (!form.elements.name.value) form.elements.name.value = file.name.replace(/\.py$/, "");
  }

  form.elements.upload.addEventListener("change", async (event) => {
    await take(event.target.files[0]);
    event.target.value = ""; // the text is in the editor; do not send the file as well
  });
  frame.addEventListener("dragover", (event) => {
    event.preventDefault();
    frame.classList.add("dropping");
  });
  frame.addEventListener("dragleave", () => frame.classList.remove("dropping"));
  frame.addEventListener("drop", (event) => {
    event.preventDefault();
    frame.classList.remove("dropping");
    take(event.dataTransfer.files[0]);
  }, true);
  document.addEventListener("htmx:after:swap", () => mark());
  document.addEventListener("click", (event) => {
    const jump = event.target.closest("[data-line]");
    if (!jump || !view) return;
    event.preventDefault();
    const line = view.state.doc.line(Math.min(Number(jump.dataset.line), view.state.doc.lines));
    view.dispatch({ selection: { anchor: line.from }, scrollIntoView: true });
    view.focus();
  });
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && !event.defaultPrevented) form.requestSubmit();
  });
  form.addEventListener("submit", () => {
    form.querySelector("[type=submit]").setAttribute("aria-busy", "true");
  });

  if (phone) area.addEventListener("input", askForCheck);
  else mount();
  mark();
  if (area.value) askForCheck();
})();
