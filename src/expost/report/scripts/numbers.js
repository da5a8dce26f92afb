// Numbers as a person reads them, as expost/numbers.py formats them.

const SPACE = '\u00a0';
// A doubt below this has no percentage: 99.99…9 % is no longer read.
const LEAST_DOUBT = 1e-6;
const SUPERSCRIPTS = {
  '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹',
};

function count(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

// A positive number rounded up to so many digits: [digits, power], '123' and −2 for 0.0123. It
// counts as its shortest decimal text, so that 0.05 stays 0.05.
function roundedUp(value, digits) {
  const [mantissa, exponent] = value.toExponential().split('e');
  const written = mantissa.replace('.', '').padEnd(digits, '0');
  const kept = written.slice(0, digits);
  if (/^0*$/.test(written.slice(digits))) return [kept, Number(exponent)];
  const next = String(BigInt(kept) + 1n);
  return next.length > digits
    ? [next.slice(0, digits), Number(exponent) + 1]
    : [next, Number(exponent)];
}

function roundedToNearest(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split('e');
  return [mantissa.replace('.', ''), Number(exponent)];
}

// Three digits, for a column: 0.0120, 1.00, 1,230, 1.20 × 10⁻⁷, ∞.
function figure(value, rounded = roundedToNearest) {
  if (Number.isNaN(value)) return 'not known';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const sign = value < 0 ? '−' : '';
  const [digits, power] = rounded(Math.abs(value), 3);
  if (power >= -4 && power < 6) return sign + placed(digits, power);
  return `${sign}${placed(digits, 0)}${timesTen(power)}`;
}

// An upper bound of at least 0, rounded up.
function figureUp(value) {
  return figure(value, roundedUp);
}

// Digits with their point: '123' and −2 as 0.0123, and 3 as 1,230.
function placed(digits, power) {
  if (power < 0) return `0.${'0'.repeat(-power - 1)}${digits}`;
  const whole = count(digits.slice(0, power + 1).padEnd(power + 1, '0'));
  const part = digits.slice(power + 1);
  return part ? `${whole}.${part}` : whole;
}

function timesTen(power) {
  const raised = [...String(power)].map((digit) => SUPERSCRIPTS[digit]).join('');
  return `${SPACE}×${SPACE}10${raised}`;
}

function withoutZeros(text) {
  return text.includes('.') ? text.replace(/0+$/, '').replace(/\.$/, '') : text;
}

// The same for a sentence, without idle zeros.
function number(value, rounded = roundedToNearest) {
  const [mantissa, ...power] = figure(value, rounded).split(SPACE);
  return [withoutZeros(mantissa), ...power].join(SPACE);
}

function numberUp(value) {
  return number(value, roundedUp);
}

// One decimal; what is not 0 or 1 never reads like it.
function percent(probability) {
  if (probability > 0 && probability < 0.0005) return `<${SPACE}0.1${SPACE}%`;
  if (probability >= 0.9995 && probability < 1) return `>${SPACE}99.9${SPACE}%`;
  const text = (100 * probability).toFixed(1);
  const whole = probability === 0 || probability === 1;
  return `${whole ? text.replace('.0', '') : text}${SPACE}%`;
}

// An upper bound of a share, rounded up: one decimal, more near 0 and near 1.
function percentUp(probability) {
  const doubt = 1 - probability;
  if (doubt === 0) return `100${SPACE}%`;
  if (doubt < LEAST_DOUBT) return `<${SPACE}100${SPACE}%`;
  if (probability === 0) return `0${SPACE}%`;
  if (probability < 0.01) {
    const [digits, power] = roundedUp(probability, 2);
    const isPlain = power + 2 >= -5;
    const shown = withoutZeros(placed(digits, isPlain ? power + 2 : 0));
    const raised = isPlain ? shown : shown + timesTen(power + 2);
    return `${raised.replace(/^1\u00a0×\u00a0/, '')}${SPACE}%`;
  }
  const size = probability < 0.1 ? 1 : 2;
  for (let places = 1; places < 12; places += 1) {
    const [digits, power] = roundedUp(probability, size + places);
    if (power < 0) return `${placed(power + 2 < size ? digits : `${digits}0`, power + 2)}${SPACE}%`;
  }
  return `<${SPACE}100${SPACE}%`;
}

// A posterior is never 1, though the nearest number may be.
function uncertain(posterior) {
  return Math.min(posterior, 1 - Number.EPSILON / 2);
}

// The attacker's certainty at an exposure: 1 where it is infinite, and only there.
function certaintyOf(exposure) {
  return Number.isFinite(exposure) ? uncertain(1 / (1 + Math.exp(-exposure))) : 1;
}

// A key as the page knows it: what cannot be seen is spelled out, what is too long is cut off.
function printable(text, limit = 200) {
  const shown = [...text].map(spelled).join('');
  const characters = [...shown];
  return characters.length <= limit ? shown : `${characters.slice(0, limit - 1).join('')}…`;
}

function spelled(character) {
  if (character === ' ' || character === SPACE || !/[\p{C}\p{Z}]/u.test(character)) {
    return character;
  }
  const known = { '\t': '\\t', '\n': '\\n', '\r': '\\r' }[character];
  if (known) return known;
  const code = character.codePointAt(0).toString(16);
  if (code.length <= 2) return `\\x${code.padStart(2, '0')}`;
  return code.length <= 4 ? `\\u${code.padStart(4, '0')}` : `\\U${code.padStart(8, '0')}`;
}
