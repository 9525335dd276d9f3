// Drawings in SVG: lines between source and target, and what is saved of a card.
const ROW = 26, SPAN = 190, EDGE = 12;
const SVG = make("template", { innerHTML: "<svg></svg>" }).content.firstChild.namespaceURI; // the page has no addresses

function shape(tag, attributes, style, ...children) {
  const node = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  Object.assign(node.style, style);
  node.append(...children);
  return node;
}

const pen = make("canvas").getContext("2d");
function widest(texts, size) {
  pen.font = size + "px system-ui, sans-serif";
  return Math.max(0, ...texts.map((text) => pen.measureText(text).width));
}

const LONGEST = 30; // characters of a label: repeated subwords can make a word of hundreds
const short = (text) => (text.length > LONGEST ? text.slice(0, LONGEST - 1) + "…" : text);

const label = (text, x, y, anchor, size = 15, colour = "var(--text)") =>
  shape("text", { x, y, "text-anchor": anchor, "font-size": size, "font-family": "system-ui, sans-serif" }, { fill: colour }, text);

function paper(width, height, ...children) {
  const node = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, {}, ...children);
  node.classList.add("drawing");
  return node;
}

// Source words on the left, target words on the right; thick lines are links, thin ones relevance.
function lineView(card, panel, shown) {
  const left = EDGE + widest(shown.source_tokens.map(short), 15), right = left + SPAN;
  const width = right + widest(shown.target_tokens.map(short), 15) + EDGE;
  const height = ROW * Math.max(shown.source_tokens.length, shown.target_tokens.length) + EDGE;
  const y = (i) => ROW * i + ROW / 2 + 5;
  const line = (i, t, kind, style) => {
    const path = `M${left + 8} ${y(i)}C${left + SPAN / 2} ${y(i)} ${left + SPAN / 2} ${y(t)} ${right - 8} ${y(t)}`;
    const node = shape("path", { d: path, fill: "none", class: kind }, { stroke: "rgb(var(--ink))", ...style });
    panel.lines.push(Object.assign(node, { target: t, full: Number(style.strokeOpacity) }));
  };
  panel.lines = [];
  shown.target_tokens.forEach((_, t) => {
    const most = largest(shown.source[t], shown.source_special);
    shown.source[t].forEach((value, i) => {
      const v = most > 0 && !shown.source_special[i] ? value / most : 0;
      if (v > 0.15) line(i, t, "relevance", { strokeWidth: 1, strokeOpacity: (0.6 * Math.min(1, v)).toFixed(2) });
    });
    (shown.links?.[t] ?? []).forEach((i) => line(i, t, "link", { strokeWidth: 2.5, strokeOpacity: "0.9" }));
  });
  const sources = shown.source_tokens.map((text, i) => label(short(text), left, y(i) + 5, "end"));
  const targets = shown.target_tokens.map((text, t) => {
    const node = label(short(text), right, y(t) + 5, "start");
    node.classList.add("unit");
    node.addEventListener("click", () => panel.targets[t].focus());
    return node;
  });
  const drawing = paper(width, height, ...panel.lines, ...sources, ...targets);
  drawing.classList.add("lines");
  drawing.setAttribute("aria-label", "Lines from source to target " + unitName() + "s");
  return drawing;
}

// Relevance is drawn for the chosen target; before one is chosen, faintly for all.
function showLine(line, t) {
  const relevance = line.classList.contains("relevance");
  line.style.strokeOpacity = t === null ? line.full * (relevance ? 0.35 : 1) : line.target === t ? line.full : relevance ? 0 : 0.12;
}

// The heat map as a drawing, for files: the table of the page cannot be saved as a picture.
function mapDrawing(panel) {
  const { shown } = panel, cell = 26, parts = areParts(shown), T = shown.target_tokens.length;
  const names = [...shown.source_tokens, "", "start", ...shown.target_tokens.slice(0, T - 1)].map(short);
  const left = EDGE + widest(shown.target_tokens.map(short), 13) + 8, top = EDGE + widest(names, 13) + 8;
  const x = (c) => left + cell * c, drawn = [];
  names.forEach((text, c) => {
    const node = label(text, 0, 0, "start", 13);
    node.setAttribute("transform", `translate(${x(c) + cell / 2 + 4} ${top - 6}) rotate(-90)`);
    drawn.push(node);
  });
  shown.target_tokens.forEach((text, t) => {
    const y = top + cell * t, before = shown.prefix[t].slice(0, t + (level === "word" ? 1 : 0));
    drawn.push(label(short(text), left - 6, y + 18, "end", 13));
    const sides = [[shown.source[t], shown.source_special, 0],
      [[shown.start[t], ...before], [false, ...shown.target_special], shown.source_tokens.length + 1]];
    for (const [values, special, from] of sides) {
      const most = largest(values, special);
      values.slice(0, names.length - from).forEach((value, c) => {
        const v = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
        drawn.push(shape("rect", { x: x(from + c) + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 2 },
          { fill: "rgb(var(--ink))", fillOpacity: v.toFixed(3) }));
        const ink = v > 0.76 ? "var(--on-ink)" : v > 0.56 ? "black" : "var(--on-weak)";
        if (parts) drawn.push(label(cellText(value, parts, most), x(from + c) + cell / 2, y + 17, "middle", 11, ink));
      });
    }
    if (shown.shares) drawn.push(label(percent(shown.shares[t]), x(names.length) + 48, y + 18, "end", 13));
  });
  if (shown.shares) drawn.push(label("source", x(names.length) + 48, top - 6, "end", 11, "var(--dim)"));
  return paper(x(names.length) + (shown.shares ? 60 : EDGE), top + cell * T + EDGE, ...drawn);
}

// All panels of a card, one below the other, with their names; colours are those of the theme.
function cardDrawing(card) {
  let height = 0, width = 0;
  const parts = [];
  for (const panel of card.panels) {
    const drawing = form === "lines" ? panel.querySelector("svg.lines").cloneNode(true) : mapDrawing(panel);
    const name = panel.getAttribute("aria-label");
    parts.push(label(name, EDGE, height + 20, "start", 13, "var(--dim)"));
    drawing.setAttribute("y", height + 28);
    height += 28 + Number(drawing.getAttribute("height"));
    width = Math.max(width, Number(drawing.getAttribute("width")), 2 * EDGE + widest([name], 13));
    parts.push(drawing);
  }
  const ground = shape("rect", { width: "100%", height: "100%" }, { fill: "var(--card)" });
  const text = new XMLSerializer().serializeToString(paper(Math.ceil(width), Math.ceil(height), ground, ...parts));
  const theme = getComputedStyle(document.documentElement);
  return text.replace(/var\((--[a-z-]+)\)/g, (_, name) => theme.getPropertyValue(name).trim().replace(/ /g, ","));
}

function saveFile(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function saveCard(card, kind) {
  const text = cardDrawing(card), name = "sentence-" + (Number(card.dataset.index) + 1) + "." + kind;
  if (kind === "svg") return saveFile(new Blob([text], { type: "image/svg+xml" }), name);
  const picture = new Image();
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  await picture.decode();
  const canvas = make("canvas", { width: 2 * picture.width, height: 2 * picture.height }); // for screens with dense pixels
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => saveFile(blob, name));
}

function saver(card) {
  const select = make("select", { className: "save", ariaLabel: "Save this card" },
    ...["save as", "svg", "png"].map((kind) => make("option", { value: kind, textContent: kind.replace(/^[a-z]{3}$/, (k) => k.toUpperCase()) })));
  select.onchange = () => {
    saveCard(card, select.value);
    select.value = "save as";
  };
  return select;
}
