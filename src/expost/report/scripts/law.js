// The law of a row's privacy loss at any ε, from the tables of report/law_table.py.

const SMALLEST = 1e-12;

// A Chebyshev series at a point of [−1, 1], by Clenshaw's recurrence.
function chebyshev(coefficients, point) {
  let after = 0;
  let next = 0;
  for (let k = coefficients.length - 1; k > 0; k -= 1) {
    [next, after] = [coefficients[k] + 2 * point * next - after, next];
  }
  return coefficients[0] + point * next - after;
}

// A function on pieces of equal width; past either end the end's value is taken.
function pieceValue(pieces, x) {
  const { low, width, coefficients } = pieces;
  const along = Math.min(Math.max(x - low, 0) / width, coefficients.length);
  const piece = Math.min(Math.floor(along), coefficients.length - 1);
  return chebyshev(coefficients[piece], 2 * (along - piece) - 1);
}

function lawOf({ law, scale }) {
  const exposure = (t) => (t > 0 ? t * pieceValue(law.exposure, Math.log(t)) : 0);
  const separation = (epsilon, distance) =>
    epsilon * Math.exp(pieceValue(scale, Math.log(epsilon))) * distance;
  return {
    separation,
    exposure: (epsilon, distance) => exposure(separation(epsilon, distance)),
    advantage: (t) =>
      t >= SMALLEST ? Math.min(pieceValue(law.advantage, Math.log(t)), 1) : 0.5 * exposure(t),
    posterior: (t) =>
      t >= SMALLEST ? Math.min(pieceValue(law.posterior, Math.log(t)), 1) : law.prior,
  };
}

// Expected figures at one ε: computed where the law is known, otherwise those of the nearest step.
function figuresOf(slider) {
  return slider.exact ? exactFigures(slider.exact) : stepFigures(slider.steps);
}

function exactFigures(exact) {
  const law = lawOf(exact);
  return {
    snap: (epsilon) => epsilon,
    at(epsilon) {
      const most = law.separation(epsilon, exact.farthest);
      return {
        ...ofExposures(exact.quantiles.map((distance) => law.exposure(epsilon, distance))),
        posterior: law.posterior(most),
        advantage: law.advantage(most),
      };
    },
    expected: (epsilon, distance) => law.exposure(epsilon, distance),
    curve: (epsilon) => ({
      ranks: exact.ranks,
      exposures: exact.distances.map((distance) => law.exposure(epsilon, distance)),
    }),
  };
}

function stepFigures(steps) {
  const gap = (step, epsilon) => Math.abs(Math.log(step.epsilon / epsilon));
  const nearest = (epsilon) =>
    steps.reduce((best, step) => (gap(step, epsilon) < gap(best, epsilon) ? step : best));
  return {
    snap: (epsilon) => nearest(epsilon).epsilon,
    at(epsilon) {
      const step = nearest(epsilon);
      return { ...ofExposures(step.exposures.map(Number)), posterior: step.posterior };
    },
    expected: () => null,
    curve: () => null,
  };
}

function ofExposures(exposures) {
  return { exposure: exposures, certainty: exposures.map(certaintyOf) };
}
