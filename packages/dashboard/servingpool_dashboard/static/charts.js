// The charts of a pool's page, from course.json. uPlot draws them.
"use strict";
(() => {
  const REFRESH = 15000;
  const HEIGHT = 190;
  const KEPT_APART = 13; // pixels between two numbers of decisions
  const box = document.getElementById("charts");
  const failure = document.getElementById("course-failure");

  // What is of pools with an SLO, or with a batch, alone.
  const fits = ({ of }) => !of || of === (box.dataset.instead || "slo");
  const CHARTS = [
    {
      title: "Replicas",
      unit: "",
      whole: true,
      most: 2 * box.dataset.max, // near a deadline the need has no bound
      lines: [
        { key: "ready", name: "ready", colour: "--c2", step: true, width: 3 },
        { key: "requested", name: "requested", colour: "--c1", step: true },
        { key: "recommended", name: "recommended", colour: "--c3", step: true, dash: [8, 4] },
        { key: "hpa", name: "HPA's", colour: "--c4", step: true, dash: [2, 4] },
        { key: "needed", name: "needed before limits", colour: "--c4", step: true, dash: [2, 4], of: "batch" },
      ],
      numbered: true,
      none: "No figures of this time.",
    },
    {
      title: `Backlog, ${box.dataset.unit}`,
      of: "batch",
      unit: "",
      lines: [{ key: "backlog", name: "wait", colour: "--c1" }],
      none: "The backlog is not known in this time.",
    },
    {
      title: "Expected finish and next deadline",
      of: "batch",
      unit: "UTC",
      clock: true,
      lines: [
        { key: "finish", name: "done at", colour: "--c1" },
        { key: "deadline", name: "deadline", colour: "--bad", step: true, dash: [8, 4] },
      ],
      none: "Nothing waited in this time.",
    },
    {
      title: "Load, in busy replicas",
      unit: "",
      lines: [
        { key: "burst", name: "19 of 20 outcomes below", colour: "--band", width: 1 },
        { key: "forecast", name: "forecast", colour: "--c3", dash: [8, 4] },
        { key: "load", name: "load", colour: "--c1" },
        { key: "capacity", name: "safe for the SLO", colour: "--c2", step: true, dash: [2, 4] },
      ],
      band: ["burst", "forecast"],
      none: "The load is not known in this time.",
      noneWithRoles: "Prefill and decode have a load each: see Roles.",
    },
    {
      title: "Time to first token, s",
      of: "slo",
      unit: "s",
      lines: [
        { key: "ttft", name: "TTFT at the SLO's percentile", colour: "--c1" },
        { key: "ttft_slo", name: "SLO", colour: "--bad", dash: [8, 4] },
      ],
      none: "No first tokens were seen in this time.",
    },
    {
      title: "Time per output token, ms",
      of: "slo",
      unit: "ms",
      times: 1000,
      lines: [
        { key: "tpot", name: "TPOT at the SLO's percentile", colour: "--c1" },
        { key: "tpot_slo", name: "SLO", colour: "--bad", dash: [8, 4] },
      ],
      none: "No output tokens were seen in this time.",
    },
    {
      title: "Error budget, times what the SLO allows",
      of: "slo",
      unit: "×",
      lines: [
        { key: "burn_now", name: "spent in 5 minutes", colour: "--c4", width: 1 },
        { key: "burn_hour", name: "spent in an hour", colour: "--c1" },
        { key: "allowed", name: "allowed", colour: "--bad", dash: [8, 4] },
      ],
      none: "Too few requests in this time to judge.",
    },
    {
      title: "Tokens per second",
      unit: "",
      lines: [
        { key: "prompts", name: "prompts", colour: "--c3" },
        { key: "output", name: "output", colour: "--c1" },
      ],
      none: "No tokens were counted in this time.",
    },
    {
      title: "Cost, dollars per hour",
      unit: "$",
      lines: [
        { key: "cost", name: "this fleet", colour: "--c1", step: true },
        { key: "hosted", name: "hosted price", colour: "--c3", dash: [8, 4] },
      ],
      none: "The cost is not known: set targets[0].costPerReplicaHour in the pool.",
    },
  ].filter((chart) => fits(chart));
  CHARTS.forEach((chart) => (chart.lines = chart.lines.filter(fits)));

  const drawn = [];
  let course = null;
  let shape = "";
  const span = () => course.times[course.times.length - 1] - course.times[0];
  const has = (key) => (course.columns[key] || []).some((value) => value !== null);
  const probe = document.body.appendChild(Object.assign(document.createElement("span"), { hidden: true }));
  const css = (name) => { // as a canvas takes it: the property itself holds the colours of both themes
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const at = (unix) => new Date(unix * 1000).toISOString().slice(...(span() > 90000 ? [5, 16] : [11, 19])).replace("T", " ");
  const shown = (value, chart) =>
    value == null ? "unknown" : chart.clock ? `${at(value)} UTC` : (chart.unit === "$" ? "$" : "") + Number(value.toPrecision(3)) +
      (chart.unit && chart.unit !== "$" ? (chart.unit === "×" ? "×" : " " + chart.unit) : "");
  const last = (values) => {
    for (let at = values.length - 1; at >= 0; at--) if (values[at] != null) return values[at];
    return null;
  };
  const make = (tag, attributes, text) => {
    const made = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([name, value]) => made.setAttribute(name, value));
    if (text !== undefined) made.textContent = text;
    return made;
  };

  function columns(chart) {
    return chart.lines.map((line) => (course.columns[line.key] || course.times.map(() => null)).map((value) =>
      value === null ? null : value * (chart.times || 1)));
  }

  // Of a decision near the cursor: its sentence, below the first chart.
  function tell(said, plot) {
    const left = plot.cursor.left;
    const near = left == null || left < 0 ? -1 : course.changes.findIndex((change) =>
      Math.abs(plot.valToPos(change.unix, "x") - left) < 8);
    const one = course.changes[near];
    const text = near < 0 ? "Point at a number to read that decision; arrow keys move along a chart." :
      `No. ${near + 1}, ${at(one.unix)}: ${one.from} → ${one.to} by ${one.by}. ${one.why}`;
    if (said.textContent !== text) said.textContent = text;
  }

  // Vertical lines: now, and each decision with its number.
  function marks(plot, chart) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const rule = (unix, colour, dash) => {
      const x = Math.round(plot.valToPos(unix, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) return null;
      ctx.strokeStyle = colour;
      ctx.lineWidth = ratio;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      return x;
    };
    ctx.save();
    if (has("forecast")) rule(course.now, css("--quiet"), [2 * ratio, 3 * ratio]);
    if (chart.numbered) {
      let free = -Infinity;
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "center";
      ctx.textBaseline = "bottom";
      course.changes.forEach((change, number) => {
        const x = rule(change.unix, css("--mark"), []);
        if (x === null || x - free < KEPT_APART * ratio) return;
        ctx.fillStyle = css("--text");
        ctx.fillText(String(number + 1), x, bbox.top - 2 * ratio);
        free = x;
      });
    }
    ctx.restore();
  }

  function options(chart, width, said) {
    const axis = { stroke: css("--text"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid"), width: 1 } };
    const index = (key) => chart.lines.findIndex((line) => line.key === key) + 1;
    return {
      width,
      height: HEIGHT,
      padding: [18, 22, 0, 0],
      tzDate: (unix) => uPlot.tzDate(new Date(unix * 1000), "Etc/UTC"),
      cursor: { sync: { key: "pool" }, drag: { x: false, y: false } },
      scales: { y: { range: (_, least, most) => {
        const pad = Math.max(300, (most - least) / 10);
        return chart.clock ? [least - pad, most + pad] : [0, most > 0 ? Math.min(most * 1.1, chart.most || most * 1.1) : 1];
      } } },
      axes: [
        { ...axis, size: 30, space: 80, values: (_, splits) => splits.map((unix) =>
          new Date(unix * 1000).toISOString().slice(...(span() > 90000 ? [5, 10] : [11, 16]))) },
        { ...axis, size: 56,
          incrs: chart.clock ? [60, 300, 600, 900, 1800, 3600, 7200, 21600, 86400, 604800] :
            chart.whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000] : undefined,
          values: (_, splits) => splits.map((value) =>
            chart.clock ? at(value).slice(0, -3) : Number(value.toPrecision(4)).toLocaleString("en")) },
      ],
      bands: chart.band ? [{ series: chart.band.map(index), fill: css("--band-fill") }] : [],
      series: [
        { label: "time", value: (_, unix) => (unix == null ? "now" : at(unix)) },
        ...chart.lines.map((line, number) => ({
          label: line.name,
          stroke: css(line.colour),
          width: line.width || 2,
          dash: line.dash,
          points: { show: false },
          paths: line.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
          show: has(line.key),
          value: (plot, value, _, at) => shown(at == null ? last(plot.data[number + 1]) : value, chart),
        })),
      ],
      hooks: { draw: [(plot) => marks(plot, chart)], setCursor: said ? [(plot) => tell(said, plot)] : [] },
    };
  }

  function draw(chart) {
    const figure = make("figure", { tabindex: 0, "aria-label": chart.title });
    figure.append(make("figcaption", {}, chart.title));
    box.append(figure);
    if (!chart.lines.some((line) => line.key !== "allowed" && !line.key.endsWith("_slo") && has(line.key))) {
      const withRoles = document.getElementById("roles") !== null;
      figure.append(make("p", { class: "none" }, (withRoles && chart.noneWithRoles) || chart.none));
      return;
    }
    const place = make("div");
    const summary = make("p", { class: "unseen" });
    figure.append(place, summary);
    const said = chart.numbered && course.changes.length ? make("p", { class: "said-now" }) : null;
    if (said) figure.append(said);
    const plot = new uPlot(options(chart, place.clientWidth || 300, said), [course.times, ...columns(chart)], place);
    plot.root.querySelectorAll(".u-series").forEach((row, number) => {
      if (number && !has(chart.lines[number - 1].key)) row.hidden = true;
    });
    if (said) tell(said, plot);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const from = plot.cursor.idx == null ? plot.data[0].length - 1 : plot.cursor.idx;
      const to = Math.min(plot.data[0].length - 1, Math.max(0, from + step));
      plot.setCursor({ left: plot.valToPos(plot.data[0][to], "x"), top: plot.over.clientHeight / 2 });
      summary.textContent = told(chart, to);
    });
    summary.setAttribute("aria-live", "polite");
    drawn.push({ chart, plot, place, summary });
  }

  function told(chart, index) {
    const values = columns(chart);
    const each = chart.lines.map((line, number) => has(line.key) &&
      `${line.name} ${shown(index === undefined ? last(values[number]) : values[number][index], chart)}`);
    return `${index === undefined ? "Now" : at(course.times[index])}: ${each.filter(Boolean).join(", ")}`;
  }

  function rebuild() {
    if (!course || !course.times.length) return;
    drawn.splice(0).forEach(({ plot }) => plot.destroy());
    box.replaceChildren();
    CHARTS.forEach(draw);
    drawn.forEach(({ chart, summary }) => (summary.textContent = told(chart)));
  }

  function show(found) {
    course = found;
    course.columns.allowed = (course.columns.burn_hour || []).map((_, index) =>
      course.times[index] <= course.now ? 1 : null);
    const now = JSON.stringify([Object.keys(course.columns).filter(has), course.changes.length]);
    if (now !== shape) {
      shape = now;
      rebuild();
    } else {
      drawn.forEach(({ chart, plot }) => plot.setData([course.times, ...columns(chart)]));
    }
  }

  async function refresh() {
    if (document.hidden || document.getElementById("live").getAttribute("aria-pressed") !== "true") return;
    let said = "";
    try {
      const answer = await fetch(box.dataset.course);
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      said = found.failure;
      if (found.times.length) show(found);
    } catch (error) {
      said = `The charts cannot be read (${error.message}).`;
    }
    if (said && course) said += " The charts end where it last answered.";
    failure.textContent = said;
    failure.hidden = !said;
    box.dataset.ready = "yes";
  }

  new ResizeObserver(() => drawn.forEach(({ plot, place }) =>
    place.clientWidth && plot.setSize({ width: place.clientWidth, height: HEIGHT }))).observe(box);
  document.addEventListener("themed", rebuild);
  refresh();
  if (!box.dataset.past) setInterval(refresh, REFRESH);
})();
