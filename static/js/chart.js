// The speedup curve: best so far per island as steps, candidates as points, failures on a rail below.
window.foundry = window.foundry || {};
foundry.chart = (figure, points) => {
  const canvas = figure.querySelector(".chart");
  const spoken = figure.querySelector("[data-chart-spoken]");
  const summary = figure.querySelector("[data-chart-summary]");
  const tableBody = figure.querySelector("[data-chart-table] tbody");
  const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2]];
  const WHOLE = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 36000, 86400];
  const reading = { x: "i", y: "linear" };
  let plot = null;
  let painting = 0;
  let drawn = [];

  const colour = (name) => getComputedStyle(canvas).getPropertyValue(name).trim();
  const islandColour = (island) => colour(`--kf-island-${island % 6}`);
  const ratio = (value) => (value == null ? "" : value.toFixed(2) + "x");
  const speed = (p) => `${ratio(p.speedup)} ${p.fidelity || ""}`.trim();
  const clock = (s) => `${Math.floor(s / 60)}:${String(Math.round(s) % 60).padStart(2, "0")}`;
  const islands = () => [...new Set(points.map((p) => p.island))].sort((a, b) => a - b);

  // Columns for uPlot: x, overall best, then for each island its steps and its points.
  function columns() {
    drawn = points.filter((p) => p[reading.x] != null).sort((a, b) => a[reading.x] - b[reading.x] || a.i - b.i);
    const xs = drawn.map((p) => p[reading.x]);
    let best = null;
    const overall = drawn.map((p) => (best = p.ok && p.speedup != null ? Math.max(best ?? 0, p.speedup) : best));
    const perIsland = islands().flatMap((island) => {
      let top = null;
      const steps = [];
      const marks = [];
      for (const p of drawn) {
        const mine = p.island === island && p.ok && p.speedup != null;
        if (mine) top = Math.max(top ?? 0, p.speedup);
        steps.push(top);
        marks.push(mine ? p.speedup : null);
      }
      return [steps, marks];
    });
    return [xs, overall, ...perIsland];
  }

  function rail(u) {
    const { ctx, bbox } = u;
    const size = 3 * devicePixelRatio;
    ctx.save();
    const eager = u.valToPos(1, "y", true);
    if (eager > bbox.top && eager < bbox.top + bbox.height) {
      ctx.strokeStyle = colour("--bs-secondary-color");
      ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, eager);
      ctx.lineTo(bbox.left + bbox.width, eager);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = colour("--bs-secondary-color");
      ctx.font = `${11 * devicePixelRatio}px sans-serif`;
      ctx.textAlign = "right";
      ctx.textBaseline = "bottom";
      ctx.fillText("eager 1.0x", bbox.left + bbox.width - 4 * devicePixelRatio, eager - 2 * devicePixelRatio);
    }
    const y = bbox.top + bbox.height - 6 * devicePixelRatio;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const p of drawn) {
      if (p.ok) continue;
      const x = u.valToPos(p[reading.x], "x", true);
      ctx.strokeStyle = islandColour(p.island);
      ctx.beginPath();
      ctx.moveTo(x - size, y - size); ctx.lineTo(x + size, y + size);
      ctx.moveTo(x - size, y + size); ctx.lineTo(x + size, y - size);
      ctx.stroke();
    }
    ctx.restore();
  }

  function range(u, low, high) {
    const top = Math.max(high ?? 1, 1);
    const bottom = Math.min(low ?? 1, 1);
    if (reading.y === "log") return [bottom / 1.3, top * 1.15];
    const span = Math.max(top - bottom, 0.2);
    return [Math.max(0, bottom - span * 0.22), top + span * 0.1];
  }

  function series() {
    const perIsland = islands().flatMap((island) => [
      { label: `island ${island}`, stroke: islandColour(island), width: 1.5, dash: DASHES[island % 6],
        paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
      { label: `candidates of island ${island}`, stroke: islandColour(island), paths: () => null,
        points: { show: true, size: 6, fill: islandColour(island) } },
    ]);
    return [
      {},
      { label: "best", stroke: colour("--kf-best-line"), width: 6, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
      ...perIsland,
    ];
  }

  function axis(extra) {
    return { stroke: colour("--bs-secondary-color"), grid: { stroke: colour("--kf-grid"), width: 1 },
      ticks: { stroke: colour("--kf-grid") }, font: "11px system-ui, sans-serif", ...extra };
  }

  function build() {
    plot?.destroy();
    plot = new uPlot({
      width: canvas.clientWidth || 600,
      height: canvas.clientHeight || 280,
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, points: { size: 8 } },
      scales: {
        x: { time: false, range: (u, low, high) => (low == null ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high]) },
        y: { distr: reading.y === "log" ? 3 : 1, range },
      },
      axes: [
        axis({ values: (u, ticks) => ticks.map((t) => (reading.x === "t" ? clock(t) : t)), incrs: WHOLE, size: 34 }),
        axis({ values: (u, ticks) => ticks.map((t) => (t == null ? "" : `${+t.toPrecision(3)}x`)), size: 48 }),
      ],
      series: series(),
      hooks: { draw: [rail], setCursor: [speak] },
    }, columns(), canvas);
    canvas.dataset.points = points.length;
  }

  function speak(u) {
    const p = drawn[u.cursor.idx];
    if (!p || document.activeElement !== canvas) return;
    spoken.textContent = `Candidate ${p.id}, island ${p.island}: ${p.ok ? speed(p) : p.verdict || "failed"}`;
  }

  function describe() {
    const good = points.filter((p) => p.ok && p.speedup != null);
    const top = good.reduce((a, b) => (a && a.speedup >= b.speedup ? a : b), null);
    summary.textContent = top
      ? `${points.length} evaluated, ${good.length} correct; best ${speed(top)} over eager by candidate ${top.id} of island ${top.island}.`
      : `${points.length} evaluated, none correct yet.`;
    const rows = points.slice(-400).map((p) => {
      const row = document.createElement("tr");
      for (const cell of [p.i, `c-${p.id}`, p.island, p.ok ? speed(p) : p.verdict || "failed"]) {
        row.append(Object.assign(document.createElement("td"), { textContent: cell }));
      }
      return row;
    });
    tableBody.replaceChildren(...rows);
  }

  // At most one paint per animation frame, however many points arrive.
  function repaint() {
    if (painting) return;
    painting = requestAnimationFrame(() => {
      painting = 0;
      const wanted = 2 + 2 * islands().length;
      if (!plot || plot.series.length !== wanted) build();
      else plot.setData(columns());
      canvas.dataset.points = points.length;
      describe();
    });
  }

  canvas.tabIndex = 0;
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !drawn.length) return;
    event.preventDefault();
    const at = plot.cursor.idx ?? (step > 0 ? -1 : drawn.length);
    const to = Math.max(0, Math.min(drawn.length - 1, at + step));
    const left = plot.valToPos(drawn[to][reading.x], "x");
    plot.setCursor({ left, top: plot.valToPos(drawn[to].speedup ?? 1, "y") });
  });
  figure.addEventListener("change", (event) => {
    if (!(event.target.name in reading) && !event.target.name.startsWith("chart-")) return;
    reading[event.target.name.replace("chart-", "")] = event.target.value;
    build();
  });
  document.addEventListener("foundry:theme", () => plot && build());
  new ResizeObserver(() => plot?.setSize({ width: canvas.clientWidth, height: canvas.clientHeight })).observe(canvas);
  build();
  describe();

  return {
    add(point) {
      const at = points.findIndex((p) => p.id === point.id);
      if (at >= 0) points[at] = point;
      else points.push(point);
      repaint();
    },
  };
};
