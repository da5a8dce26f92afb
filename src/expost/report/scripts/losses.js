// Losses f(z; y) of one linear predictor z, as expost/losses.py defines them.

// f′(z; y).
const SLOPES = {
  // −y·σ(a − yz), by e^(−∣z∣), which does not overflow.
  logistic(loss, z, y) {
    const [share] = logisticShares(loss, z, y);
    return -y * share;
  },
  // −y·clip((1 + h − yz)/(2h), 0, 1).
  'huber-hinge': (loss, z, y) =>
    -y * Math.min(Math.max((1 + loss.width - y * z) / (2 * loss.width), 0), 1),
  // z − y, clipped to ±h.
  huber: (loss, z, y) => Math.min(Math.max(z - y, -loss.width), loss.width),
  squared: (_, z, y) => z - y,
};

// f″(z; y) of the smooth ones.
const CURVATURES = {
  logistic(loss, z, y) {
    const [share, rest] = logisticShares(loss, z, y);
    return share * rest;
  },
  squared: () => 1,
};

// The distance of z beyond the nearer knot of f′: below 0 between them, where f″ is not 0.
const BEYOND = {
  'huber-hinge': (loss, z, y) => Math.abs(1 - y * z) - loss.width,
  huber: (loss, z, y) => Math.abs(z - y) - loss.width,
};

// (σ(a − yz), σ(yz − a)).
function logisticShares(loss, z, y) {
  const factor = Math.exp(loss.margin);
  const near = Math.exp(-Math.abs(z));
  const isRight = y * z > 0;
  const odds = isRight ? near * factor : near / factor;
  const [part, rest] = [odds / (1 + odds), 1 / (1 + odds)];
  return isRight ? [part, rest] : [rest, part];
}

// sup ∣f′∣ over z ± move: f′ grows with z, so its size is largest at an end.
function largestSlope(loss, z, y, move) {
  const slope = SLOPES[loss.name];
  return Math.max(Math.abs(slope(loss, z - move, y)), Math.abs(slope(loss, z + move, y))) * UP;
}

// sup f″ over z ± move: by ∣f‴∣ ≤ M·f″, or 0 or its bound where f″ jumps.
function largestCurvature(loss, z, y, move) {
  if (BEYOND[loss.name]) {
    const isInside = BEYOND[loss.name](loss, z, y) <= move + 4 * ROUNDOFF * (1 + Math.abs(z));
    return isInside ? loss.curvature_bound : 0;
  }
  const growth = Math.exp(Math.min(loss.third_ratio * move, 700));
  return Math.min(CURVATURES[loss.name](loss, z, y) * growth * UP, loss.curvature_bound);
}

// Softmax: p, 1 − pₖ as a sum of the others, and u = p − e_y.
function softmaxAt(z, y) {
  const top = Math.max(...z);
  const powers = z.map((each) => Math.exp(each - top));
  const total = sumOf(powers, (each) => each);
  const p = powers.map((each) => each / total);
  const rest = p.map((_, k) => sumOf(p.keys(), (j) => (j === k ? 0 : p[j])));
  const u = p.map((each, k) => (k === y ? -rest[y] : each));
  return { p, rest, length: Math.sqrt(sumOf(u, (each) => each * each)) };
}
