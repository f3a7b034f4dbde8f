(() => {
  const box = document.currentScript.closest(".spd-mask");
  const { index, states, looks, offers, digits } = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
  const form = box.querySelector("form");
  const queries = [...box.querySelectorAll(".spd-queries tr")];
  const run = box.querySelector(".spd-run");
  const cell = (name, text, look = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    if (look) made.className = look;
    if (name === "th") made.scope = "row";
    return made;
  };
  const line = (place, stages, token, sign) => {
    const row = document.createElement("tr");
    row.append(cell("th", place < stages ? `stage ${place}` : "done"));
    if (token === "-") row.append(cell("td", "–"), cell("td", ""), cell("td", "idle"));
    else row.append(cell("td", digits.indexOf(token)), cell("td", sign, looks[sign]), cell("td", offers[sign]));
    return row;
  };
  const show = () => {
    const query = form.querySelector("[data-query]:checked").value;
    const [mask, runs, stages] = states[spdChosen(form, index)];
    queries.forEach((row, place) => {
      row.classList.toggle("spd-on", place === Number(query));
      [...mask[place]].forEach((sign, key) => row.cells[key + 1].replaceWith(cell("td", sign, looks[sign])));
    });
    const pairs = runs[query].match(/../g);
    box.querySelector(".spd-newest").textContent = query;
    box.querySelector(".spd-flying").textContent = pairs.slice(0, stages).filter(([token]) => token !== "-").length;
    run.replaceChildren(...pairs.map(([token, sign], place) => line(place, stages, token, sign)));
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", show);
  spdChosen(form, index);
  queries.forEach((row) => row.addEventListener("click", (event) => {
    if (!event.target.closest("label")) row.querySelector("input").click();
  }));
})();
