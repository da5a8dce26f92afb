// Places in the drawings: the log scales that report/axes.py drew them by.

const SVG = 'http://www.w3.org/2000/svg';

function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// The area between the axes of a drawing.
function areaOf(svg) {
  const box = svg.querySelector('clipPath rect');
  const [x, y, width, height] = ['x', 'y', 'width', 'height'].map((name) =>
    Number(box.getAttribute(name)),
  );
  return { left: x, right: x + width, top: y, bottom: y + height };
}

function logScale(low, high, start, end) {
  const unit = (end - start) / Math.log(high / low);
  return {
    at: (value) => (value > 0 ? start + unit * Math.log(value / low) : start + 10 * (start - end)),
    value: (place) => low * Math.exp((place - start) / unit),
  };
}

function pair(text) {
  return text.split(' ').map(Number);
}

// An upright line in each chart over ε, where the slider stands.
function startTransition() {
  const figure = document.querySelector('figure[data-transition]');
  if (!figure) return () => {};
  const [low, high] = pair(figure.dataset.transition);
  const lines = [...figure.querySelectorAll('svg[role=img]')].map((svg) => {
    const area = areaOf(svg);
    const line = svgElement('line', { class: 'moving', y1: area.top, y2: area.bottom });
    svg.append(line);
    return { line, x: logScale(low, high, area.left, area.right) };
  });
  return (epsilon) => {
    for (const { line, x } of lines) {
      line.toggleAttribute('hidden', !(epsilon >= low && epsilon <= high));
      line.setAttribute('x1', x.at(epsilon).toFixed(1));
      line.setAttribute('x2', x.at(epsilon).toFixed(1));
    }
  };
}
