"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const cards = [...document.querySelectorAll("article.card")];
const tip = document.getElementById("tip");
let level = "word", form = "map"; // units, and how they are drawn: "map" or "lines"
const low = () => Number(document.getElementById("low")?.value ?? 0) / 100;

function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

const exact = (value) => (value === null ? "undefined" : String(value));
const percent = (value) => (value === null ? "–" : Math.round(100 * value) + " %");
const unitName = () => (level === "word" ? "word" : "subword");

// Shade of a value against the largest of its line and side; `special` ones do not set the scale.
function shade(node, value, largest) {
  const v = largest > 0 ? Math.min(1, Math.max(0, value / largest)) : 0;
  node.classList.add("shade");
  node.classList.toggle("middle", v > 0.56 && v <= 0.76);
  node.classList.toggle("strong", v > 0.76);
  node.classList.toggle("negative", value < 0);
  node.style.setProperty("--v", v.toFixed(3));
}

function largest(values, special) {
  return Math.max(0, ...values.filter((value, i) => value !== null && !special[i]));
}

function bar(share) {
  const node = make("span", { className: "bar", role: "img", ariaLabel: percent(share) + " from the source" });
  node.style.setProperty("--share", Math.min(1, Math.max(0, share)));
  return node;
}

// Scores that share out a whole, so that per cent mean something.
const areParts = (shown) => shown.shares !== null || [shown.source, shown.prefix, shown.start].flat(2)
  .every((value) => value === null || (value >= 0 && value <= 1.0001));

// What stands in a cell: per cent in all of a table, or two digits in all of it; nothing for little.
function cellText(value, parts, most) {
  if (value === null) return "–";
  if (parts) return Math.abs(value) < 0.005 ? "" : String(Math.round(100 * value));
  return Math.abs(value) < Math.max(1e-6, most / 20) ? "" : value.toPrecision(2);
}

// What a card shows: the view of that name, or for "" all of them one below the other.
function draw(card) {
  const { views } = data[card.dataset.index];
  const view = views.find((one) => one.name === card.view) || views[0];
  const all = card.view === "" && views.length > 1;
  card.panels = (all ? views : [view]).map((one) => makePanel(card, one, all));
  const top = make("div", { className: "top" },
    make("span", { textContent: "Sentence " + (Number(card.dataset.index) + 1) }), make("span", {}));
  if (views.length === 1) top.lastChild.append(view.name + gapText(card.panels[0].shown));
  else top.lastChild.append(switcher(card, views, view), all ? "" : gapText(card.panels[0].shown));
  const heads = data[card.dataset.index].heads;
  card.replaceChildren(top, ...card.panels, ...(heads ? [headBrowser(heads)] : []), saver(card));
  card.style.minHeight = ""; // it kept the place of what is drawn now
  card.drawn = level + form;
}

function switcher(card, views, view) {
  const select = make("select", { className: "view", ariaLabel: "Method or model" });
  select.append(...views.map((one) => make("option", { value: one.name, textContent: one.name })),
    make("option", { value: "", textContent: "all together" }));
  select.value = card.view === "" ? "" : view.name;
  select.onchange = () => {
    card.view = select.value;
    draw(card);
    card.querySelector("select.view").focus();
  };
  return select;
}

const gapText = (shown) => (shown.conservation_gap === null
  ? "" : ` · ${shown.gap}: ` + shown.conservation_gap.toExponential(1));

function makePanel(card, view, named) {
  const shown = view[level] || view.word;
  const panel = make("section", { className: "panel", ariaLabel: view.name, shown });
  panel.sources = shown.source_tokens.map((text, i) =>
    make("li", { className: "word" + (shown.source_special[i] ? " special" : ""), textContent: text }));
  panel.targets = shown.target_tokens.map((text, t) => {
    const button = make("button", {
      type: "button", className: "word" + (shown.target_special[t] ? " special" : ""), textContent: text,
      onclick: () => choose(card, panel, t), onfocus: () => choose(card, panel, t),
    });
    if (shown.unchosen[t])
      button.append(make("span", { className: "unchosen", role: "img", ariaLabel: "not the model's first choice" }));
    if (shown.contrast?.[t]) button.append(make("span", { className: "other", textContent: otherText(shown, t) }));
    if (shown.shares && shown.shares[t] !== null) {
      const flagged = shown.shares[t] < low() && !shown.target_special[t];
      if (flagged) button.append(make("span", { className: "flag", role: "img", ariaLabel: "little from the source" }));
      button.append(bar(shown.shares[t]));
    }
    return button;
  });
  panel.detail = make("p", { className: "detail", ariaLive: "polite" });
  if (named) panel.append(make("p", { className: "name" }, make("b", { textContent: view.name }), gapText(shown)));
  panel.append(
    make("ul", { className: "words", ariaLabel: "Source" }, side("source", "li"), ...panel.sources),
    make("div", { className: "words", role: "group", ariaLabel: "Target" }, side("target", "span"), ...panel.targets),
    panel.detail,
    make("div", { className: "scroll" }, form === "map" ? heatMap(panel, shown) : lineView(card, panel, shown)));
  light(panel, null);
  return panel;
}

// What target unit t is compared with: another unit, or the end of another prefix.
const otherText = ({ contrast, diverges }, t) =>
  (diverges ? "other prefix: " + contrast[t].replace(/^.+(?=.{19}$)/s, "…") : "not " + contrast[t]);
const side = (text, tag) => make(tag, { className: "side", textContent: text, ariaHidden: "true" });

function heatMap(panel, shown) {
  const T = shown.target_tokens.length;
  const columns = shown.prefix.some((row) => row[T - 1] !== 0) ? T : T - 1; // nothing comes after EOS
  const inner = level === "word" ? 1 : 0; // a word's first subwords contribute to its later ones
  const parts = areParts(shown);
  const column = (text) => make("th", { scope: "col" }, make("span", { textContent: text }));
  const group = (text, span) => make("th", { colSpan: span, scope: "colgroup", textContent: text });
  const head = make("thead", {},
    make("tr", {}, make("td"), group("source " + unitName() + "s", shown.source_tokens.length), make("td", { className: "gap" }),
      group("earlier target " + unitName() + "s", columns + 1), make("td", { className: "gap" })),
    make("tr", {}, make("td"), ...shown.source_tokens.map(column), make("td", { className: "gap" }),
      column("start"), ...shown.target_tokens.slice(0, columns).map(column), make("td", { className: "gap" }),
      ...(shown.shares ? [make("th", { scope: "col", textContent: "from the source" })] : []),
      ...(shown.log_probs ? [make("th", { scope: "col", className: "number", textContent: "log p" })] : [])));
  panel.rows = shown.target_tokens.map((target, t) => {
    const cell = (value, most, from) => {
      const node = make("td", { textContent: cellText(value, parts, most) });
      node.ariaLabel = node.dataset.tip = from + " → " + target + ": " + exact(value); // for readers, and on hover
      shade(node, value, most);
      return node;
    };
    const before = shown.prefix[t].slice(0, t + inner);
    const mostSource = largest(shown.source[t], shown.source_special);
    const mostPrefix = largest([...before, shown.start[t]], shown.target_special);
    const row = make("tr", {},
      make("th", { scope: "row", textContent: target + (shown.contrast?.[t] ? " (" + otherText(shown, t) + ")" : ""),
        onclick: () => panel.targets[t].focus() }),
      ...shown.source[t].map((value, i) => cell(value, mostSource, shown.source_tokens[i])),
      make("td", { className: "gap" }),
      cell(shown.start[t], mostPrefix, "start token"),
      ...shown.prefix[t].slice(0, columns).map((value, j) => j < t + inner
        ? cell(value, mostPrefix, shown.target_tokens[j]) : make("td", { className: "later" })),
      make("td", { className: "gap" }));
    if (shown.shares) {
      const share = shown.shares[t];
      row.append(make("td", { className: "share" }, ...(share === null ? [] : [Object.assign(bar(share), { ariaHidden: "true" })]),
        make("span", { textContent: percent(share) })));
    }
    if (shown.log_probs) row.append(make("td", { className: "number", textContent: shown.log_probs[t]?.toFixed(2) ?? "–" }));
    return row;
  });
  const label = "What contributed to each target " + unitName();
  const dense = shown.source_tokens.length + columns > 36;
  return make("table", { className: dense ? "map dense" : "map", ariaLabel: label }, head, make("tbody", {}, ...panel.rows));
}

// Choose target unit t, also where the card explains the same translation by other methods.
function choose(card, panel, t) {
  const same = (other) => other.shown.target_tokens.join("\0") === panel.shown.target_tokens.join("\0");
  card.panels.filter(same).forEach((other) => light(other, t));
}

// Light up what contributed to target unit t; null puts everything out.
function light(panel, t) {
  const { shown } = panel;
  panel.targets.forEach((button, j) => {
    button.setAttribute("aria-pressed", j === t);
    button.tabIndex = j === (t ?? 0) ? 0 : -1; // Tab goes from sentence to sentence, arrows from word to word
    shade(button, 0, 1);
  });
  panel.sources.forEach((word, i) => {
    shade(word, 0, 1);
    word.classList.toggle("linked", t !== null && Boolean(shown.links?.[t].includes(i)));
  });
  panel.rows?.forEach((row, j) => row.classList.toggle("chosen", j === t));
  panel.lines?.forEach((line) => showLine(line, t));
  if (t === null) {
    panel.detail.replaceChildren("Choose a target " + unitName() + " to see where it comes from.");
    return;
  }
  const source = shown.source[t], before = shown.prefix[t].slice(0, t);
  const mostSource = largest(source, shown.source_special), mostPrefix = largest(before, shown.target_special);
  panel.sources.forEach((word, i) => shade(word, source[i], mostSource));
  before.forEach((value, j) => shade(panel.targets[j], value, mostPrefix));
  panel.detail.replaceChildren(...describe(shown, t));
}

// The same in words: the three best sources, where the relevance is, the log-probability.
function describe(shown, t) {
  const sum = (values) => values.reduce((a, b) => a + (b || 0), 0);
  const bold = (text) => make("b", { textContent: text });
  const source = shown.source[t], line = [bold(shown.target_tokens[t])], parts = areParts(shown);
  if (shown.contrast) {
    const compared = shown.diverges ? "prefix" : unitName();
    if (!shown.contrast[t]) return [bold(shown.target_tokens[t]), " is not compared with another " + compared + "."];
    if (shown.diverges) line.unshift("The divergence from the prediction after ", bold(shown.contrast[t]), " at ");
    else line.push(" and not ", bold(shown.contrast[t]));
  }
  const linked = shown.links?.[t] ?? [];
  linked.forEach((i, n) => line.push(n ? " " : " translates ", bold(shown.source_tokens[i])));
  if (linked.length) line.push(" ·");
  const best = [...source.keys()].filter((i) => source[i] > 0 && !shown.source_special[i])
    .sort((i, j) => source[j] - source[i]).slice(0, 3);
  best.forEach((i, n) => line.push(n ? ", " : " comes most from ", bold(shown.source_tokens[i]),
    " " + (parts ? percent(source[i]) : source[i].toPrecision(2))));
  if (shown.shares) {
    line.push(" · " + percent(shown.shares[t]) + " from the source (relevance: source " + percent(sum(source)) +
      ", earlier words " + percent(sum(shown.prefix[t])) + ", start token " + percent(shown.start[t]) + ")");
  }
  if (shown.log_probs && shown.log_probs[t] !== null) {
    line.push(" · log p " + shown.log_probs[t].toFixed(2) + " (p " + Math.exp(shown.log_probs[t]).toPrecision(2) + ")");
  }
  return line;
}

// Cards are drawn when they come near the window, so that hundreds of sentences open at once.
const nearby = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.near = entry.isIntersecting;
    if (entry.isIntersecting && entry.target.drawn !== level + form) draw(entry.target);
  }
}, { rootMargin: "600px" });
cards.forEach((card) => nearby.observe(card));
addEventListener("beforeprint", () => {
  cards.filter((card) => card.drawn !== level + form).forEach(draw);
  for (const map of document.querySelectorAll("table.map")) { // its width in em, by which it is fitted to the paper
    map.style.setProperty("--ems", map.offsetWidth / parseFloat(getComputedStyle(map).fontSize));
  }
});

document.querySelectorAll("input[name=level]").forEach((input) => input.addEventListener("change", () => {
  level = input.value;
  cards.filter((card) => card.near).forEach(draw);
}));

document.querySelectorAll("input[name=view]").forEach((input) => input.addEventListener("change", () => {
  form = input.value;
  drawAll();
}));

function drawAll() {
  cards.forEach((card) => { card.drawn = null; if (card.near) draw(card); });
}

document.getElementById("low")?.addEventListener("input", drawAll);

document.getElementById("view")?.addEventListener("change", (event) => {
  cards.forEach((card) => { card.view = event.target.value; });
  drawAll();
});

document.getElementById("search")?.addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const card of cards) {
    const { source, views } = data[card.dataset.index];
    card.hidden = ![source, ...views.map((view) => view.target)].join("\n").toLowerCase().includes(wanted);
  }
  document.getElementById("none").hidden = cards.some((card) => !card.hidden);
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

document.addEventListener("keydown", (event) => {
  const panel = event.target.closest?.(".panel");
  if (!panel || !event.target.matches("button.word")) return;
  if (event.key === "Escape") choose(panel.closest(".card"), panel, null);
  const here = panel.targets.indexOf(event.target);
  const next = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: panel.targets.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  panel.targets[next]?.focus();
});

document.addEventListener("mouseover", (event) => {
  const cell = event.target.closest?.("td[data-tip]");
  tip.hidden = !cell;
  if (!cell) return;
  tip.textContent = cell.dataset.tip;
  const at = cell.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(at.left, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = (at.top > 40 ? at.top - tip.offsetHeight - 4 : at.bottom + 4) + "px";
});

if (window.frameElement) { // in a notebook: as high as the content, also when that changes
  const fit = () => { frameElement.style.height = Math.ceil(document.documentElement.getBoundingClientRect().height) + "px"; };
  new ResizeObserver(fit).observe(document.documentElement);
}
