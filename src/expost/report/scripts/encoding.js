// Values as on a form to a row of the unit ball: expost/publishing/lookup.py, expost/data/_entries.py
// and expost/data/unit_ball.py, with the same formulas.

// A decimal number without thousands separators. Before three digits a comma may be one.
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const COMMA = /^([+-]?\d*),(\d{1,2}|\d{4,})$/;
const LARGEST = 1e150;
// Between these the square of a length has lost nothing by over- or underflow that counts.
const SMALLEST_SQUARE = 1e-250;
const LARGEST_SQUARE = 1e300;

function numberOf(text) {
  const plain = text.replaceAll('−', '-').replace(COMMA, '$1.$2');
  return NUMBER.test(plain) ? Number(plain) : NaN;
}

// The error of a number, or undefined.
function faultOf(notes, value) {
  if (Number.isNaN(value)) return notes.number;
  return Math.abs(value) <= LARGEST ? undefined : notes.size;
}

// The features of one value, with an error or a note: each is a sentence of expost or undefined.
function encodedValue(field, text, missing) {
  const value = text.trim();
  return field.kind === 'number'
    ? encodedNumber(field, value, value === '' || missing.includes(value))
    : encodedLevel(field, value);
}

// (x − mean)/scale, cut to ±cut; a missing x is the fill, with an indicator.
function encodedNumber(field, value, isMissing) {
  if (isMissing && field.fill === null) return { error: field.notes.required };
  const x = isMissing ? field.fill : numberOf(value);
  const error = faultOf(field.notes, x);
  if (error !== undefined) return { error };
  const standard = (x - field.mean) / field.scale;
  if (!Number.isFinite(standard)) return { error: field.notes.size };
  const isCut = field.cut !== null && Math.abs(x - field.mean) > field.cut * field.scale;
  const features = [
    field.cut === null ? standard : Math.min(Math.max(standard, -field.cut), field.cut),
  ];
  if (field.indicator) features.push(isMissing ? 1 : 0);
  if (isMissing) return { features, note: field.notes.missing };
  return { features, note: isCut ? field.notes.cut : undefined };
}

// One 0/1 feature for each level, and one for missing cells; the value is the index of a level,
// 'missing' or 'none'.
function encodedLevel(field, value) {
  if (value === '') return { error: field.notes.required };
  const isMissing = value === 'missing';
  const index = Number(value);
  const features = field.levels.map((_, level) => (level === index ? 1 : 0));
  if (field.missing_level) features.push(isMissing ? 1 : 0);
  if (isMissing) return { features, note: field.notes.missing };
  const isKnown = Number.isInteger(index) && index >= 0 && index < field.levels.length;
  return { features, note: isKnown ? undefined : field.notes.unknown };
}

// row = κ·(√(1 − s²)·x/max(q, ∥x∥), s): the factor and the constant are κ√(1 − s²) and κs.
function intoBall(ball, features) {
  const square = sumOf(features, (x) => x * x);
  const isPlain = square >= SMALLEST_SQUARE && square <= LARGEST_SQUARE;
  const peak = isPlain ? 1 : features.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1;
  const length = isPlain
    ? Math.sqrt(square)
    : Math.sqrt(sumOf(features, (x) => (x / peak) * (x / peak)));
  const isClipped = isPlain ? length > ball.norm : (peak / ball.norm) * length > 1;
  const over = isClipped ? length : ball.norm / peak;
  const row = features.map((x) => (x / peak) * (ball.factor / over));
  if (ball.constant !== null) row.push(ball.constant);
  return { row, isClipped };
}

// A label as the loss takes it: (y − centre)/scale, clipped to ±bound.
function encodedLabel(label, text) {
  const value = text.trim();
  const y = numberOf(value);
  const error = value === '' ? label.notes.required : faultOf(label.notes, y);
  if (error !== undefined) return { error };
  const scaled = (y - label.centre) / label.scale;
  const slack = 1e-12 * (label.bound + Math.abs(label.centre) / label.scale);
  return {
    y: Math.min(Math.max(scaled, -label.bound), label.bound),
    note: Math.abs(scaled) > label.bound + slack ? label.notes.cut : undefined,
  };
}

function sumOf(values, term) {
  let total = 0;
  for (const value of values) total += term(value);
  return total;
}
