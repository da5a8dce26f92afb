// The law of a row's loss at any ε, from the tables of report/law_table.py.

const SMALLEST = 1e-12;

// A Chebyshev series at a place of [−1, 1], by Clenshaw's recurrence.
function chebyshev(coefficients, place) {
  let after = 0;
  let next = 0;
  for (let k = coefficients.length - 1; k > 0; k -= 1) {
    [next, after] = [coefficients[k] + 2 * place * next - after, next];
  }
  return coefficients[0] + place * next - after;
}

// A function on pieces of equal width; past either end the end's value is taken.
function pieceValue(pieces, x) {
  const { low, width, coefficients } = pieces;
  const along = Math.min(Math.max(x - low, 0) / width, coefficients.length);
  const piece = Math.min(Math.floor(along), coefficients.length - 1);
  return chebyshev(coefficients[piece], 2 * (along - piece) - 1);
}

function lawOf(exact) {
  const { law, scale } = exact;
  const exposure = (t) => (t > 0 ? t * pieceValue(law.exposure, Math.log(t)) : 0);
  return {
    separation: (epsilon, distance) =>
      epsilon * Math.exp(pieceValue(scale, Math.log(epsilon))) * distance,
    exposure,
    advantage: (t) =>
      t >= SMALLEST ? Math.min(pieceValue(law.advantage, Math.log(t)), 1) : 0.5 * exposure(t),
    belief: (t) =>
      t >= SMALLEST ? Math.min(pieceValue(law.belief, Math.log(t)), 1) : law.prior,
  };
}
