// The slider over ε, the number beside it, and the figures that follow them.

// Digits of an ε that is chosen by sliding: what is shown is what is used.
const DIGITS = 4;
const POSITIONS = 1000;
const QUIET_MILLISECONDS = 600;

function startSlider(slider, listeners) {
  const section = document.querySelector('[data-slider]');
  if (!slider || !section) return null;
  const range = section.querySelector('input[type=range]');
  const box = section.querySelector('input[type=number]');
  const at = section.querySelector('[data-at]');
  const live = section.querySelector('[data-live]');
  const figures = figuresOf(slider);
  const scale = slider.exact ? logPositions(slider) : stepPositions(slider.steps);
  let epsilon = slider.start;
  let frame = 0;
  let told = 0;

  function show() {
    frame = 0;
    const found = figures.at(epsilon);
    section.dataset.epsilon = String(epsilon);
    const own = epsilon === slider.start ? `, ${slider.begins}` : '';
    at.textContent = `At ε = ${number(epsilon)}${own}:`;
    for (const output of section.querySelectorAll('output[data-figure]')) {
      showFigure(output, found);
    }
    for (const listener of listeners) listener(epsilon, figures);
    clearTimeout(told);
    told = setTimeout(() => {
      const text = sentence(slider, epsilon, found);
      if (live.textContent !== text) live.textContent = text;
    }, QUIET_MILLISECONDS);
  }

  function move(wanted) {
    epsilon = figures.snap(Math.min(Math.max(wanted, slider.low), slider.high));
    range.value = String(scale.position(epsilon));
    range.setAttribute('aria-valuetext', `ε = ${number(epsilon)}`);
    if (!frame) frame = requestAnimationFrame(show);
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
  // What is out of range, or between two steps, becomes the nearest there is when it is left.
  box.addEventListener('change', () => {
    box.value = String(epsilon);
  });
  section.querySelector('[data-reset]').addEventListener('click', () => {
    move(slider.start);
    box.value = String(epsilon);
  });
  epsilon = figures.snap(slider.start);
  box.value = String(epsilon);
  range.value = String(scale.position(epsilon));
  range.setAttribute('aria-valuetext', `ε = ${number(epsilon)}`);
  section.dataset.epsilon = String(epsilon);
  for (const listener of listeners) listener(epsilon, figures);
  return { figures, epsilon: () => epsilon };
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

function showFigure(output, found) {
  const [name, place] = output.dataset.figure.split('-');
  const value = place === undefined ? found[name] : found[name][Number(place)];
  output.dataset.value = String(value);
  output.textContent = FIGURE_TEXTS[name](value);
}

// Rounded up, all of them. What the tables cannot tell from certainty is not called one.
const MOST_TIMES = 1e9;
const FIGURE_TEXTS = {
  typical: figureUp,
  belief: (belief) => percentUp(uncertain(belief)),
  advantage: (advantage) => percentUp(uncertain(advantage)),
  wrong: (times) =>
    times < MOST_TIMES ? `1 time in ${numberUp(times)}` : `less than 1 time in ${number(MOST_TIMES)}`,
};

function sentence(slider, epsilon, found) {
  const most = found.typical[found.typical.length - 1];
  return (
    `At ε = ${number(epsilon)} the largest typical exposure is ${numberUp(most)} nats; ` +
    `an attacker's typical belief about the most exposed ${slider.unit} is ` +
    `${FIGURE_TEXTS.belief(found.belief)}.`
  );
}
