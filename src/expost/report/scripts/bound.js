// The upper bound of the exposure of one row with one label (Redberg & Wang, Algorithm 2), as
// expost/mechanisms/bounds.py and output_bound.py derive it. Python computes every constant of a
// formula; here are elementary functions of the row. Names are those of the derivation.

const ROUNDOFF = 2 ** -53;
// What a handful of roundings can take from a bound.
const UP = 1 + 1e-12;
// Another machine's exponentials may differ in the last digits: no bound is below that of Python.
const SAFE = 1 + 2 ** -34;

const BOUNDS = { objective: objectiveBound, softmax: softmaxBound, output: outputBound };

// {exposure, everything} in nats of a row of the unit ball; y as the loss takes it.
function rowBound(formula, row, y) {
  const norm = lengthOf(row) * formula.norm_up;
  const parts = BOUNDS[formula.kind](formula, row, y, norm);
  let exposure = parts.bound * UP * SAFE;
  if (formula.cap !== null) exposure = Math.min(exposure, formula.cap);
  if (formula.added !== undefined) exposure = (exposure + (formula.added ?? Infinity)) * UP;
  if (Number.isNaN(exposure)) exposure = Infinity;
  const more = formula.separation ? reportBound(formula.separation, parts, norm) : 0;
  return { exposure, everything: exposure + more };
}

// Objective perturbation of a loss with one output: ∣loss∣ ≤ volume + noise.
function objectiveBound(formula, row, y, norm) {
  const { loss, noise, released } = formula;
  const z = dot(row, formula.theta);
  const move = norm * formula.room + 1e-15 * (1 + Math.abs(z));
  const slope = largestSlope(loss, z, y, move);
  const curvature = largestCurvature(loss, z, y, move);
  // T·∥x∥ from ĝ: ∣ĝ·x∣ and what its noise can hide (erratum 6).
  const inner = released
    ? Math.abs(dot(row, released.gradient)) + norm * released.slack
    : Infinity;
  const part = noise.rate === undefined
    ? gaussianNoise(noise, slope, norm, inner)
    : laplaceNoise(noise, slope * norm, norm, inner);
  return { bound: part + volumeBound(formula, row, norm, curvature), slope, curvature };
}

// s²/2σ² + s·T/σ², s = ∣f′∣∥x∥.
function gaussianNoise({ scale, across }, slope, norm, inner) {
  const least = Math.min(norm * across, inner);
  return ((slope / scale) * ((slope * norm * norm) / 2 + least)) / scale;
}

// β(√(R² + 2sRC + s²) − R); with ĝ also upwards and downwards at ∣g·u∣ ≤ T where T ≤ R.
function laplaceNoise({ rate, norm: least, cosine, moved }, step, norm, inner) {
  let bound = Math.min(step, grown(least, least * cosine, step) + 4 * moved);
  if (inner < Infinity) {
    const near = Math.max(least - 2 * moved, 0);
    const reach = inner / (norm > 0 ? norm : 1);
    const back = reach <= near ? -grown(near, -Math.min(reach, near), step) : step;
    bound = Math.min(bound, Math.max(grown(near, reach, step), back));
  }
  return rate * bound;
}

// √(r² + 2si + s²) − r, without subtracting.
function grown(r, i, s) {
  const added = s * (s + 2 * i);
  const total = Math.sqrt(Math.max(r * r + added, 0)) + r;
  return added / (total > 0 ? total : 1);
}

// log(1 + f″∥x∥²/λ), and with Ĥ also −log(1 − f″μ̄).
function volumeBound({ penalty, released }, row, norm, curvature) {
  const plain = Math.log1p((curvature * norm * norm) / penalty);
  if (!released) return plain;
  const squares = released.vectors.map((vector) => dot(row, vector) ** 2);
  let leverage = (norm * norm) / penalty;
  for (const weights of released.weights) leverage = Math.min(leverage, dot(squares, weights));
  leverage *= curvature * released.growth * UP;
  return leverage < 1 ? Math.min(plain, -Math.log1p(-leverage)) : plain;
}

// Softmax regression by objective perturbation: K classes, Θ (K, d).
function softmaxBound(formula, row, y, norm) {
  const { noise } = formula;
  const { p, rest, length } = softmaxAt(formula.theta.map((theta) => dot(row, theta)), y);
  const growth = Math.exp(Math.SQRT2 * norm * formula.room + 4096 * ROUNDOFF);
  const long = length * growth * norm;
  const volume = softmaxVolume(p, rest, (growth * norm * norm) / formula.penalty);
  if (noise.rate !== undefined) return { bound: long * noise.rate + volume };
  const missed = rest[y] * growth * norm;
  return { bound: ((long * long) / 2 + missed * noise.across) / noise.scale ** 2 + volume };
}

// log det(I + aS) = log(1 + Σ pₖ(Π over j ≠ k of (1 + apⱼ) − 1)), at most a·tr S.
function softmaxVolume(p, rest, a) {
  const logs = p.map((each) => Math.log1p(each * a));
  const total = sumOf(logs, (each) => each);
  const others = (k) => sumOf(logs.keys(), (j) => (j === k ? 0 : logs[j]));
  const volume = total < 600
    ? Math.log1p(sumOf(p.keys(), (k) => p[k] * Math.expm1(others(k))))
    : total + Math.log1p(-sumOf(p, (each) => (each * each * a) / (1 + each * a)));
  const trace = sumOf(p.keys(), (k) => p[k] * rest[k]);
  const rounding = 8 * (p.length + 8) * (1 + total) * ROUNDOFF;
  return Math.min(volume * (1 + rounding), trace * a * UP);
}

// Output perturbation: β·distance, or μ²/2 + μΦ⁻¹(1−ρ/4m), μ = distance/σ.
function outputBound(formula, row, y, norm) {
  const pull = largestPull(formula, row, y, norm);
  const distance = (pull / formula.others + formula.tolerance) / formula.regularization;
  const separation = (Math.min(distance, formula.sensitivity) / formula.scale) * UP;
  if (formula.quantile === null) return { bound: separation / UP };
  return { bound: separation * (separation / 2 + formula.quantile) };
}

// sup ∥ΛA + ∇ℓ(A)∥ over the ball of radius r around θ, piece by piece of a = A·u.
function largestPull(formula, row, y, norm) {
  const { loss, length, hidden, radius, regularization, sines, widest } = formula;
  const along = dot(row, formula.theta) / (norm > 0 ? norm : 1);
  const size = Math.abs(along);
  const across = Math.sqrt(Math.max((length - size) * (length + size), 0) + hidden);
  const sizes = sines.map((sine) => {
    const a = along + radius * sine;
    return Math.abs(regularization * a + SLOPES[loss.name](loss, a * norm, y) * norm);
  });
  let pull = 0;
  widest.forEach((wide, piece) => {
    const inner = Math.max(sizes[piece], sizes[piece + 1]);
    pull = Math.max(pull, Math.hypot(inner, regularization * (across + radius * wide)));
  });
  return pull * (1 + 1e-9);
}

// What ĝ and Ĥ add: μ²/2 + μΦ⁻¹(1−ρ/2m), μ² = μ₂² + μ₃² (Theorem 10.2).
function reportBound(separation, { slope, curvature }, norm) {
  const first = (slope * norm + separation.gradient_added) / separation.gradient_scale;
  const second = (curvature * norm * norm + separation.hessian_added) / separation.hessian_scale;
  const mu = Math.hypot(first, second);
  return mu * (mu / 2 + separation.most) * SAFE;
}

// Also of a row whose squares underflow; a power of two scales exactly.
function lengthOf(row) {
  const length = Math.sqrt(sumOf(row, (x) => x * x));
  if (length >= 1e-140) return length;
  return Math.sqrt(sumOf(row, (x) => (x * 2 ** 700) ** 2)) * 2 ** -700;
}

function dot(first, second) {
  let total = 0;
  for (let index = 0; index < first.length; index += 1) total += first[index] * second[index];
  return total;
}

// A formula whose arrays are numbers again: they are base64 of little-endian float64.
function unpackedFormula(formula) {
  const numbers = (text) => numbersOf(text, 'getFloat64', 8);
  const parts = (values, length) =>
    Array.from({ length: values.length / length }, (_, part) =>
      values.slice(part * length, (part + 1) * length),
    );
  const theta = numbers(formula.theta);
  const plain = { ...formula, theta };
  if (formula.kind === 'softmax') plain.theta = parts(theta, theta.length / formula.loss.classes);
  if (formula.kind === 'output') {
    plain.sines = numbers(formula.sines);
    plain.widest = numbers(formula.widest);
  }
  if (formula.released) {
    plain.released = {
      ...formula.released,
      gradient: numbers(formula.released.gradient),
      vectors: parts(numbers(formula.released.vectors), theta.length),
      weights: formula.released.weights.map(numbers),
    };
  }
  return plain;
}
