(() => {
  const box = document.currentScript.closest(".spd-frames");
  const index = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
  const frames = [...box.querySelectorAll(".spd-frame")];
  const words = box.querySelector(".spd-words");
  const form = box.querySelector("form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    const chosen = [...form.querySelectorAll("input:checked")].map((input) => input.value).join("|");
    frames.forEach((frame, place) => { frame.hidden = place !== index[chosen]; });
    words.textContent = frames[index[chosen]].getAttribute("aria-label");
  });
})();
