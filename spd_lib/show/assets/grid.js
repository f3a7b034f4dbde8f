// Listens on the document, so that it serves every grid of the page, however late a grid arrives.
if (!window.spdPipeGrid) {
  window.spdPipeGrid = true;

  const cellOf = (node) => (node instanceof Element ? node.closest(".spd-pipe td") : null);

  const clear = (pipe) => {
    pipe.querySelector("table").classList.remove("spd-on");
    pipe.querySelectorAll(".spd-life, .spd-judge").forEach((cell) => cell.classList.remove("spd-life", "spd-judge"));
    const line = pipe.querySelector(".spd-line");
    line.textContent = line.dataset.hint;
  };

  const show = (cell) => {
    const pipe = cell.closest(".spd-pipe");
    clear(pipe);
    const line = pipe.querySelector(".spd-line");
    if (!cell.dataset.u) {
      if (cell.ariaLabel) line.textContent = cell.ariaLabel;
      return;
    }
    const uids = cell.dataset.u.split(" ");
    for (const uid of uids) {
      pipe.querySelectorAll(`td[data-judges~="${uid}"]`).forEach((judge) => judge.classList.add("spd-judge"));
      pipe.querySelectorAll(`td[data-u~="${uid}"]`).forEach((life) => life.classList.add("spd-life"));
    }
    pipe.querySelector("table").classList.add("spd-on");
    line.textContent = uids.map((uid) => pipe.querySelector(`li[data-u="${uid}"]`).textContent).join(" ");
  };

  // Brings the whole life of a token into view, as far as it fits beside the row names.
  const reveal = (pipe) => {
    const box = pipe.querySelector(".spd-scroll");
    const names = box.querySelector("th").offsetWidth;
    const life = [...box.querySelectorAll(".spd-life")];
    if (!life.length) return;
    const left = Math.min(...life.map((cell) => cell.offsetLeft)) - names;
    const right = Math.max(...life.map((cell) => cell.offsetLeft + cell.offsetWidth)) - box.clientWidth;
    if (box.scrollLeft < right && right <= left) box.scrollLeft = right;
    if (box.scrollLeft > left && right <= left) box.scrollLeft = left;
  };

  const target = (cell, event) => {
    const rows = [...cell.closest("tbody").rows];
    const row = rows.indexOf(cell.parentElement);
    const last = cell.parentElement.cells.length - 1;
    const to = {
      ArrowLeft: [row, cell.cellIndex - 1],
      ArrowRight: [row, cell.cellIndex + 1],
      ArrowUp: [row - 1, cell.cellIndex],
      ArrowDown: [row + 1, cell.cellIndex],
      Home: [event.ctrlKey ? 0 : row, 1],
      End: [event.ctrlKey ? rows.length - 1 : row, last],
    }[event.key];
    if (!to) return null;
    return rows[Math.min(Math.max(to[0], 0), rows.length - 1)].cells[Math.min(Math.max(to[1], 1), last)];
  };

  let hovered = null;
  document.addEventListener("mouseover", (event) => {
    const cell = cellOf(event.target);
    if (hovered && !cell) {
      const focused = cellOf(document.activeElement);
      clear(hovered);
      if (focused) show(focused);
    }
    hovered = cell && cell.closest(".spd-pipe");
    if (cell) show(cell);
  });
  document.addEventListener("focusin", (event) => {
    const cell = cellOf(event.target);
    if (!cell) return;
    cell.closest("tbody").querySelectorAll('[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
    cell.tabIndex = 0;
    show(cell);
    reveal(cell.closest(".spd-pipe"));
  });
  document.addEventListener("focusout", (event) => {
    const cell = cellOf(event.target);
    if (cell && !cellOf(event.relatedTarget)) clear(cell.closest(".spd-pipe"));
  });
  document.addEventListener("keydown", (event) => {
    const cell = cellOf(event.target);
    if (cell && event.key === "Escape") clear(cell.closest(".spd-pipe"));
    const next = cell && target(cell, event);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}
