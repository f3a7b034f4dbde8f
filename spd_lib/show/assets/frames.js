(() => {
  const box = document.currentScript.closest(".spd-frames");
  const index = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
  const frames = [...box.querySelectorAll(".spd-frame")];
  const words = box.querySelector(".spd-words");
  const form = box.querySelector("form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    const chosen = spdChosen(form, index);
    frames.forEach((frame, place) => { frame.hidden = place !== chosen; });
    words.textContent = frames[chosen].getAttribute("aria-label");
  });
  spdChosen(form, index);
})();
