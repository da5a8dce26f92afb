// Numbers as a person reads them, like report/wording.py: never a certainty that is not there.

const SPACE = '\u00a0';
const SUPERSCRIPTS = {
  '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹',
};

function count(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

// Three digits, for a column: 0.0120, 1.00, 1,230, 1.20 × 10⁻⁷, ∞.
function figure(value) {
  if (Number.isNaN(value)) return 'not known';
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const sign = value < 0 ? '−' : '';
  const [mantissa, exponent] = Math.abs(value).toExponential(2).split('e');
  const power = Number(exponent);
  if (power >= -4 && power < 6) {
    const [whole, part] = Number(`${mantissa}e${power}`).toFixed(Math.max(0, 2 - power)).split('.');
    return sign + count(whole) + (part ? `.${part}` : '');
  }
  const raised = [...String(power)].map((digit) => SUPERSCRIPTS[digit]).join('');
  return `${sign}${mantissa}${SPACE}×${SPACE}10${raised}`;
}

// The same for a sentence, without idle zeros.
function number(value) {
  const [mantissa, ...power] = figure(value).split(SPACE);
  const short = mantissa.includes('.') ? mantissa.replace(/0+$/, '').replace(/\.$/, '') : mantissa;
  return [short, ...power].join(SPACE);
}

// One decimal; what is not 0 or 1 never reads like it.
function percent(probability) {
  if (probability > 0 && probability < 0.0005) return `<${SPACE}0.1${SPACE}%`;
  if (probability >= 0.9995 && probability < 1) return `>${SPACE}99.9${SPACE}%`;
  const text = (100 * probability).toFixed(1);
  const whole = probability === 0 || probability === 1;
  return `${whole ? text.replace('.0', '') : text}${SPACE}%`;
}

// A belief is never 1, though the nearest number may be.
function uncertain(belief) {
  return Math.min(belief, 1 - Number.EPSILON / 2);
}

// The belief at these log odds: certain where they are infinite, and only there.
function sigmoid(loss) {
  const belief = loss >= 0 ? 1 / (1 + Math.exp(-loss)) : Math.exp(loss) / (1 + Math.exp(loss));
  return Number.isFinite(loss) ? Math.max(uncertain(belief), Number.MIN_VALUE) : belief;
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
