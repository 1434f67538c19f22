"use strict";
(function () {
  const table = document.getElementById("uncertain");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const headers = Array.from(table.tHead.rows[0].cells);
  const search = document.getElementById("search");
  const onlyUnlike = document.getElementById("only-unlike");
  const count = document.getElementById("count");
  const unlikeAt = headers.findIndex((header) => header.hasAttribute("data-flag"));

  function value(row, column) {
    const node = Array.from(row.cells[column].childNodes).find((child) => child.nodeType === Node.TEXT_NODE);
    const text = node ? node.data.trim() : "";
    const plain = text.replace(/\u2212/g, "-").replace(/,/g, "").replace(/[ \u00a0]%$/, "");
    const number = plain === "" ? NaN : Number(plain);
    return Number.isNaN(number) ? text : number;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b);
  }

  function sort(column) {
    const header = headers[column];
    const up = header.getAttribute("aria-sort") !== "ascending";
    const keyed = Array.from(body.rows, (row) => [value(row, column), row]);
    keyed.sort((a, b) => {
      const missing = (a[0] === "" || a[0] === "\u2013") - (b[0] === "" || b[0] === "\u2013");
      return missing || (up ? compare(a[0], b[0]) : compare(b[0], a[0]));
    });
    keyed.forEach((pair) => body.appendChild(pair[1]));
    headers.forEach((other) => other.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      const matches = words.every((word) => text.includes(word)) &&
        !(onlyUnlike && onlyUnlike.checked && row.cells[unlikeAt].textContent === "");
      row.hidden = !matches;
      shown += matches;
    });
    count.textContent = shown === rows.length ? "" : shown + " of " + rows.length + " rows";
  }

  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    while (header.firstChild) button.appendChild(header.firstChild);
    header.appendChild(button);
    header.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(column));
  });
  document.getElementById("controls").hidden = false;
  search.addEventListener("input", filter);
  if (onlyUnlike) onlyUnlike.addEventListener("change", filter);
})();
