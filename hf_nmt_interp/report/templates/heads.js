// A grid of attention heads: a small map for each layer and head, one of them enlarged.
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); // weights times 255, row by row

function paint(canvas, bytes, rows, columns) {
  Object.assign(canvas, { width: columns, height: rows });
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim().split(" ").map(Number);
  const image = canvas.getContext("2d").createImageData(columns, rows);
  bytes.forEach((value, n) => image.data.set([...ink, value], 4 * n));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function largeMap(kind, title, bytes) {
  const table = make("table", { className: kind.columns.length > 36 ? "map dense" : "map", ariaLabel: title });
  const head = kind.columns.map((text) => make("th", { scope: "col" }, make("span", { textContent: text })));
  table.append(make("thead", {}, make("tr", {}, make("td"), ...head)), make("tbody", {}, ...kind.rows.map((text, r) => {
    const values = [...bytes.subarray(r * kind.columns.length, (r + 1) * kind.columns.length)].map((v) => v / 255);
    return make("tr", {}, make("th", { scope: "row", textContent: text }), ...values.map((value, c) => {
      const cell = make("td", { textContent: value < 0.015 ? "" : Math.round(100 * value) });
      cell.ariaLabel = cell.dataset.tip = text + " attends to " + kind.columns[c] + ": " + value.toFixed(2);
      shade(cell, value, 1);
      return cell;
    }));
  })));
  return make("div", { className: "scroll" }, make("p", { className: "name", textContent: title }), table);
}

function headGrid(kind) {
  const place = make("div"), grid = make("div", { className: "grid" });
  grid.style.setProperty("--heads", Math.max(...kind.layers.map((layer) => layer.heads.length)));
  kind.layers.forEach((layer) => {
    grid.append(make("span", { textContent: "layer " + layer.layer }));
    layer.heads.forEach((head, n) => {
      const title = `${kind.name}, layer ${layer.layer}, head ${head}`, bytes = bytesOf(layer.weights[n]);
      const canvas = make("canvas", {}), button = make("button", { type: "button", ariaLabel: title, title }, canvas);
      button.style.gridColumn = n + 2;
      paint(canvas, bytes, kind.rows.length, kind.columns.length);
      button.onclick = () => {
        grid.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", other === button));
        place.replaceChildren(largeMap(kind, title, bytes));
      };
      grid.append(button);
    });
  });
  return [make("h3", { textContent: kind.name + ": rows attend to columns" }), grid, place];
}

function headBrowser(kinds) {
  const details = make("details", { className: "heads" }, make("summary", { textContent: "Attention heads" }));
  details.addEventListener("toggle", () => details.append(...kinds.flatMap(headGrid)), { once: true }); // drawn when opened
  return details;
}
