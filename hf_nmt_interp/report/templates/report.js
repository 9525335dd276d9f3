"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const cards = [...document.querySelectorAll("article.card")];
const tip = document.getElementById("tip");
let level = "word";
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
  node.classList.toggle("strong", v > 0.7);
  node.classList.toggle("negative", value < 0);
  node.style.setProperty("--v", v.toFixed(3));
}

function largest(values, special) {
  return Math.max(0, ...values.filter((value, i) => value !== null && !special[i]));
}

function bar(share) {
  const node = make("span", { className: "bar" });
  node.style.setProperty("--share", Math.min(1, Math.max(0, share)));
  return node;
}

// What stands in a cell: per cent where all values are parts of 1, else two digits; nothing for less than 1 %.
function cellText(value, parts) {
  if (value === null) return "–";
  if (parts) return value < 0.005 ? "" : String(Math.round(100 * value));
  return Math.abs(value) < 1e-6 ? "" : value.toPrecision(2);
}

function current(card) {
  const views = data[card.dataset.index].views;
  const view = views[card.view || 0];
  return { views, view, shown: view[level] || view.word };
}

function draw(card) {
  const { views, view, shown } = current(card);
  const sources = shown.source_tokens.map((text, i) =>
    make("li", { className: "word" + (shown.source_special[i] ? " special" : ""), textContent: text }));
  const targets = shown.target_tokens.map((text, t) => {
    const button = make("button", {
      type: "button", className: "word" + (shown.target_special[t] ? " special" : ""), textContent: text,
      onclick: () => choose(card, t), onfocus: () => choose(card, t),
    });
    if (shown.shares && shown.shares[t] !== null) {
      const flagged = shown.shares[t] < low() && !shown.target_special[t];
      if (flagged) button.append(make("span", { className: "flag", role: "img", ariaLabel: "little from the source" }));
      button.append(bar(shown.shares[t]));
    }
    return button;
  });
  card.targets = targets;
  card.sources = sources;
  const switcher = make("select", { className: "view", ariaLabel: "Method or model" });
  switcher.append(...views.map((one, i) => make("option", { value: i, textContent: one.name })));
  switcher.value = card.view || 0;
  switcher.onchange = () => { card.view = Number(switcher.value); draw(card); };
  const gap = shown.conservation_gap === null
    ? "" : " · relevance lost or made up: " + shown.conservation_gap.toExponential(1);
  card.detail = make("p", { className: "detail", ariaLive: "polite" });
  card.replaceChildren(
    make("div", { className: "top" }, make("span", { textContent: "Sentence " + (Number(card.dataset.index) + 1) }),
      make("span", {}, views.length > 1 ? switcher : view.name, gap)),
    make("ul", { className: "words", ariaLabel: "Source" }, side("source", "li"), ...sources),
    make("div", { className: "words", role: "group", ariaLabel: "Target" }, side("target", "span"), ...targets),
    card.detail,
    make("div", { className: "scroll" }, heatMap(card, shown)));
  card.drawn = level;
  choose(card, null);
}

const side = (text, tag) => make(tag, { className: "side", textContent: text, ariaHidden: "true" });

function heatMap(card, shown) {
  const T = shown.target_tokens.length;
  const columns = shown.prefix.some((row) => row[T - 1] !== 0) ? T : T - 1; // nothing comes after EOS
  const inner = level === "word" ? 1 : 0; // a word's first subwords contribute to its later ones
  const all = [...shown.source.flat(), ...shown.prefix.flat()];
  const parts = all.every((value) => value === null || (value >= 0 && value <= 1.0001));
  const column = (text) => make("th", { scope: "col" }, make("span", { textContent: text }));
  const group = (text, span) => make("th", { colSpan: span, scope: "colgroup", textContent: text });
  const head = make("thead", {},
    make("tr", {}, make("td"), group("source " + unitName() + "s", shown.source_tokens.length), make("td", { className: "gap" }),
      group("target " + unitName() + "s before", columns + 1), make("td", { className: "gap" })),
    make("tr", {}, make("td"), ...shown.source_tokens.map(column), make("td", { className: "gap" }),
      column("start"), ...shown.target_tokens.slice(0, columns).map(column), make("td", { className: "gap" }),
      ...(shown.shares ? [make("th", { scope: "col", textContent: "from the source" })] : []),
      ...(shown.log_probs ? [make("th", { scope: "col", className: "number", textContent: "log p" })] : [])));
  card.rows = shown.target_tokens.map((target, t) => {
    const cell = (value, most, from) => {
      const node = make("td", { textContent: cellText(value, parts) });
      node.dataset.tip = from + " → " + target + ": " + exact(value);
      shade(node, value, most);
      return node;
    };
    const before = shown.prefix[t].slice(0, t + inner);
    const mostSource = largest(shown.source[t], shown.source_special);
    const mostPrefix = largest([...before, shown.start[t]], shown.target_special);
    const row = make("tr", {},
      make("th", { scope: "row", textContent: target, onclick: () => card.targets[t].focus() }),
      ...shown.source[t].map((value, i) => cell(value, mostSource, shown.source_tokens[i])),
      make("td", { className: "gap" }),
      cell(shown.start[t], mostPrefix, "start token"),
      ...shown.prefix[t].slice(0, columns).map((value, j) => j < t + inner
        ? cell(value, mostPrefix, shown.target_tokens[j]) : make("td", { className: "later" })),
      make("td", { className: "gap" }));
    if (shown.shares) {
      const share = shown.shares[t];
      row.append(make("td", { className: "share" }, ...(share === null ? [] : [bar(share)]),
        make("span", { textContent: percent(share) })));
    }
    if (shown.log_probs) row.append(make("td", { className: "number", textContent: shown.log_probs[t]?.toFixed(2) ?? "–" }));
    return row;
  });
  return make("table", { className: "map" }, head, make("tbody", {}, ...card.rows));
}

// Light up what contributed to target unit t; null puts everything out.
function choose(card, t) {
  const { shown } = current(card);
  card.chosen = t;
  card.targets.forEach((button, j) => {
    button.setAttribute("aria-pressed", j === t);
    shade(button, 0, 1);
  });
  card.sources.forEach((word) => shade(word, 0, 1));
  card.rows.forEach((row, j) => row.classList.toggle("chosen", j === t));
  if (t === null) {
    card.detail.replaceChildren("Choose a target " + unitName() + " to see where it comes from.");
    return;
  }
  const source = shown.source[t], before = shown.prefix[t].slice(0, t);
  const mostSource = largest(source, shown.source_special), mostPrefix = largest(before, shown.target_special);
  card.sources.forEach((word, i) => shade(word, source[i], mostSource));
  before.forEach((value, j) => shade(card.targets[j], value, mostPrefix));
  const sum = (values) => values.reduce((a, b) => a + (b || 0), 0);
  const bold = (text) => make("b", { textContent: text });
  const best = source.findIndex((value, i) => value === mostSource && !shown.source_special[i]);
  const line = [bold(shown.target_tokens[t])];
  if (mostSource > 0) line.push(" comes most from ", bold(shown.source_tokens[best]));
  if (shown.shares) {
    line.push(" · relevance: source " + percent(sum(source)) + ", words before " + percent(sum(shown.prefix[t])) +
      ", start token " + percent(shown.start[t]));
  }
  if (shown.log_probs && shown.log_probs[t] !== null) {
    line.push(" · log p " + shown.log_probs[t].toFixed(2) + " (p " + Math.exp(shown.log_probs[t]).toPrecision(2) + ")");
  }
  card.detail.replaceChildren(...line);
}

// Cards are drawn when they come near the window, so that hundreds of sentences open at once.
const nearby = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.near = entry.isIntersecting;
    if (entry.isIntersecting && entry.target.drawn !== level) draw(entry.target);
  }
}, { rootMargin: "600px" });
cards.forEach((card) => nearby.observe(card));
addEventListener("beforeprint", () => cards.filter((card) => card.drawn !== level).forEach(draw));

document.querySelectorAll("input[name=level]").forEach((input) => input.addEventListener("change", () => {
  level = input.value;
  cards.filter((card) => card.near).forEach(draw);
}));

document.getElementById("low")?.addEventListener("input", () => {
  cards.forEach((card) => { card.drawn = null; if (card.near) draw(card); });
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
  const card = event.target.closest?.("article.card");
  if (!card || !event.target.matches("button.word")) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape") choose(card, null);
  if (!step) return;
  event.preventDefault();
  card.targets[card.targets.indexOf(event.target) + step]?.focus();
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
