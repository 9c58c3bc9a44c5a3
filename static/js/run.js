// The live run page: one socket, one cursor. Every frame passes `apply`, whether it came by socket or by polling.
(() => {
  const start = JSON.parse(document.getElementById("run-data").textContent);
  const live = document.getElementById("live");
  const indicator = document.getElementById("live-state");
  const counter = document.getElementById("live-seq");
  const feed = () => document.getElementById("feed");
  const hold = document.getElementById("feed-hold");
  const waiting = document.getElementById("feed-waiting");
  const chart = foundry.chart(document.getElementById("curve"), start.points);
  const WORDS = { live: "live", resuming: "reconnecting, will resume", polling: "no socket, asking every 5 s",
    stale: "no sign of life from the server", lost: "disconnected", ended: "over", connecting: "connecting" };

  let seq = start.since;
  let over = start.over;
  let held = 0;
  let lastSign = Date.now();
  let openedAt = 0;
  let applying = Promise.resolve();

  function show(state, words) {
    indicator.dataset.state = state;
    indicator.firstElementChild.textContent = words || WORDS[state];
  }

  function countHeld() {
    waiting.hidden = held === 0;
    waiting.querySelector("span").textContent = `${held} new ${held === 1 ? "row" : "rows"}, show`;
  }

  // A row for a candidate that the page has not seen: a place for the swap to fill, newest first.
  function makePlace(id) {
    if (document.getElementById(`c-${id}`)) return;
    if (hold.checked) {
      held += 1;
      countHeld();
      return;
    }
    const row = document.createElement("li");
    row.id = `c-${id}`;
    document.getElementById("feed-empty")?.remove();
    feed().prepend(row);
    while (feed().children.length > 200) feed().lastElementChild.remove();
  }

  async function swap(content) {
    // An open diff is being read: leave it until it is closed.
    if (document.querySelector("#diff-latest details[open]")) content = content.replace('id="diff-latest"', 'id="diff-later"');
    await htmx.swap({ sourceElement: live, target: live, swap: "none", text: content, transition: false });
    foundry.refreshTimes();
    const head = document.getElementById("run-head");
    if (head?.dataset.title) document.title = head.dataset.title;
  }

  // The same as `reading.point_of` on the server.
  const pointOf = ({ candidate, island, evaluations, seconds, ratio, fidelity, verdict, kind, state }) => ({
    id: candidate, island, i: evaluations, t: seconds, speedup: ratio, fidelity, ok: verdict === "correct", verdict: kind || verdict || state,
  });

  async function apply(frame) {
    lastSign = Date.now();
    if (frame.seq != null && frame.seq <= seq) return;
    if (frame.seq != null) seq = Math.max(seq, frame.seq);
    counter.textContent = seq;
    if (frame.kind === "reload") return location.reload();
    const number = frame.payload?.candidate;
    if (number && frame.content?.includes(`<li id="c-${number}"`)) makePlace(number);
    if (frame.kind === "candidate.done" && frame.payload.state !== "abandoned") chart.add(pointOf(frame.payload));
    if (frame.content) await swap(frame.content);
    if (frame.kind === "run.state" || frame.kind === "run.best") refreshControls();
    if (frame.kind === "end") finish();
  }

  async function refreshControls() {
    try {
      await htmx.ajax("GET", start.controls, { target: "#run-controls", swap: "outerHTML" });
    } catch {
      // The server went away; the next event of the run's state asks again.
    }
  }

  function finish() {
    over = true;
    show("ended");
    // Nothing to plot: the page that the server draws says why and what to do.
    if (!start.points.length) return location.reload();
    document.getElementById("steer")?.remove();
    refreshControls();
  }

  const enqueue = (frame) => (applying = applying.then(() => apply(frame)).catch((error) => console.error(error)));

  live.addEventListener("htmx:ws:before:message:incoming", (event) => {
    const { detail } = event;
    detail.cancelled = true; // swapped by `apply`, after looking at its number
    const frame = JSON.parse(detail.message.data);
    detail.waitUntil(enqueue(frame).then(() => {
      detail.connection.url = detail.connection.url.replace(/since=\d+/, `since=${seq}`);
    }));
    if (!over && frame.kind !== "end") show("live");
  });
  live.addEventListener("htmx:ws:after:connection", () => {
    openedAt = lastSign = Date.now();
    if (!over) show("live");
  });
  live.addEventListener("htmx:ws:close", (event) => {
    openedAt = 0;
    if (over) return;
    if (event.detail.code === 4401) show("lost", "signed out; sign in again");
    else if (event.detail.code === 4404) show("lost", "this run is no longer shared with you");
    else if (event.detail.code === 4409) show("lost", "a new version is running; reload the page");
    else show("resuming");
  });

  async function poll() {
    if (over || document.hidden) return;
    if (openedAt) {
      if (Date.now() - lastSign > 45000) show("stale");
      return;
    }
    if (Date.now() - lastSign < 8000) return;
    try {
      const answer = await fetch(`${start.events}?since=${seq}&html=1`, { headers: { Accept: "application/json" } });
      if (!answer.ok) return show("lost", answer.status === 404 ? "this run is no longer shared with you" : "the server is restarting");
      const { events, is_over: isOver, last_seq: newest } = await answer.json();
      for (const frame of events) await enqueue(frame);
      if (isOver && seq >= newest) return finish();
      if (!openedAt && !over) show("polling");
    } catch {
      show("resuming");
    }
  }
  show(over ? "ended" : "connecting");
  setInterval(poll, 5000);

  async function refreshFeed() {
    held = 0;
    countHeld();
    await htmx.ajax("GET", start.feed, { target: "#feed", swap: "outerHTML" });
    foundry.refreshTimes();
  }
  waiting.addEventListener("click", refreshFeed);
  hold.addEventListener("change", () => !hold.checked && held && refreshFeed());
})();
