// The slider over ε, the number next to it, and the figures that follow them.

// Digits of an ε that is chosen by sliding: what is shown is what is used.
const DIGITS = 4;
const POSITIONS = 1000;
const QUIET_MILLISECONDS = 600;

// Figures rounded up.
const FIGURE_TEXTS = {
  exposure: figureUp,
  certainty: percentUp,
  posterior: (posterior) => percentUp(uncertain(posterior)),
  advantage: (advantage) => percentUp(uncertain(advantage)),
};

// Starts a slider; each listener is called with every ε and the figures there.
function startSlider(section, slider, listeners) {
  const range = section.querySelector('input[type=range]');
  const box = section.querySelector('input[type=number]');
  const live = section.querySelector('[data-live]');
  const figures = figuresOf(slider);
  const scale = slider.exact ? logPositions(slider) : stepPositions(slider.steps);
  let epsilon = figures.snap(slider.start);
  let frame = 0;
  let timer = 0;

  function show() {
    frame = 0;
    const values = figures.at(epsilon);
    section.dataset.epsilon = String(epsilon);
    const own = epsilon === slider.start ? `, ${slider.start_label}` : '';
    section.querySelector('[data-at]').textContent =
      `Expected over releases at ε = ${number(epsilon)}${own}:`;
    for (const output of section.querySelectorAll('output')) {
      const [name, index] = output.dataset.output.split('-');
      const value = index === undefined ? values[name] : values[name][Number(index)];
      output.dataset.value = String(value);
      output.textContent = FIGURE_TEXTS[name](value);
    }
    for (const listener of listeners) listener(epsilon, figures);
    return values;
  }

  // A screen reader hears one sentence when the slider rests.
  function announce() {
    const values = show();
    clearTimeout(timer);
    timer = setTimeout(() => {
      const text =
        `At ε = ${number(epsilon)} the expected certainty about the most exposed ${slider.unit} ` +
        `is ${percentUp(values.certainty[values.certainty.length - 1])}.`;
      if (live.textContent !== text) live.textContent = text;
    }, QUIET_MILLISECONDS);
  }

  function place() {
    range.value = String(scale.position(epsilon));
    range.setAttribute('aria-valuetext', `ε = ${number(epsilon)}`);
  }

  function move(wanted) {
    epsilon = figures.snap(Math.min(Math.max(wanted, slider.low), slider.high));
    place();
    if (!frame) frame = requestAnimationFrame(announce);
  }

  range.min = '0';
  range.max = String(scale.last);
  range.step = '1';
  range.addEventListener('input', () => {
    move(scale.epsilon(Number(range.value)));
    box.value = String(epsilon);
  });
  box.addEventListener('input', () => {
    if (box.value !== '' && Number(box.value) > 0) move(Number(box.value));
  });
  // A number out of range, or between two steps, becomes the nearest one when the box is left.
  box.addEventListener('change', () => {
    box.value = String(epsilon);
  });
  section.querySelector('[data-reset]').addEventListener('click', () => {
    move(slider.start);
    box.value = String(epsilon);
  });
  box.value = String(epsilon);
  place();
  show();
}

function logPositions(slider) {
  const width = Math.log(slider.high / slider.low);
  return {
    last: POSITIONS,
    position: (epsilon) => Math.round((POSITIONS * Math.log(epsilon / slider.low)) / width),
    epsilon: (position) =>
      Number((slider.low * Math.exp((width * position) / POSITIONS)).toPrecision(DIGITS)),
  };
}

function stepPositions(steps) {
  return {
    last: steps.length - 1,
    position: (epsilon) => steps.findIndex((step) => step.epsilon === epsilon),
    epsilon: (position) => steps[position].epsilon,
  };
}
