// Offers only what exists, and returns the number of the chosen state. `index`: the choices, one of each control and
// joined by "|" → number of their state. Each control follows those before it: a choice that has no state any more
// gives way to the last one that has, and a control that changes nothing is off.
function spdChosen(form, index) {
  let states = Object.entries(index).map(([choices, state]) => [choices.split("|"), state]);
  [...form.querySelectorAll("fieldset")].forEach((fieldset, place) => {
    const radios = [...fieldset.querySelectorAll("input")];
    for (const radio of radios) radio.disabled = !states.some(([choices]) => choices[place] === radio.value);
    const possible = radios.filter((radio) => !radio.disabled);
    const kept = possible.find((radio) => radio.checked) ?? possible.at(-1);
    kept.checked = true;
    const shown = {}; // by the choices that follow
    fieldset.disabled = states.every(([choices, state]) => (shown[choices.slice(place + 1)] ??= state) === state);
    states = states.filter(([choices]) => choices[place] === kept.value);
  });
  return states[0][1];
}
