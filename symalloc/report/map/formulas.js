// The value of each formula at a binding, exactly: integers are BigInt, `//` and `%` round towards minus
// infinity as Python's do.  page.py says what a node is.  null: not known there (a division by zero).

function floorDivided(a, b) {
  const quotient = a / b;
  return a % b !== 0n && (a < 0n) !== (b < 0n) ? quotient - 1n : quotient;
}

function sumOf(terms, values) {
  let sum = 0n;
  for (const [coefficient, ...factors] of terms) {
    let product = BigInt(coefficient);
    for (let i = 0; i < factors.length; i += 2) {
      const value = values[factors[i]];
      if (value === null) return null;
      product *= value ** BigInt(factors[i + 1]);
    }
    sum += product;
  }
  return sum;
}

// `and` and `or` look at one operand after the other, up to the one that settles them
function junction(parts, settles) {
  for (const part of parts) {
    if (part === null || part === settles) return part;
  }
  return !settles;
}

function extreme(parts, better) {
  if (parts.includes(null)) return null;
  return parts.reduce((best, part) => (better(part, best) ? part : best));
}

const KINDS = {
  "s": ([name], _, binding) => (Object.hasOwn(binding, name) ? binding[name] : null),
  "+": (terms, values) => sumOf(terms, values),
  "//": ([a, b], v) => (v[a] === null || v[b] === null || v[b] === 0n ? null : floorDivided(v[a], v[b])),
  "%": ([a, b], v) =>
    v[a] === null || v[b] === null || v[b] === 0n ? null : v[a] - v[b] * floorDivided(v[a], v[b]),
  "min": (parts, v) => extreme(parts.map((i) => v[i]), (a, b) => a < b),
  "max": (parts, v) => extreme(parts.map((i) => v[i]), (a, b) => a > b),
  "if": ([c, a, b], v) => (v[c] === null ? null : v[c] ? v[a] : v[b]),
  "<=": ([a], v) => (v[a] === null ? null : v[a] <= 0n),
  "==": ([a], v) => (v[a] === null ? null : v[a] === 0n),
  "!=": ([a], v) => (v[a] === null ? null : v[a] !== 0n),
  "and": (parts, v) => junction(parts.map((i) => v[i]), false),
  "or": (parts, v) => junction(parts.map((i) => v[i]), true),
};

// the values of all nodes, each of which comes behind those that it is made of
function evaluated(nodes, binding) {
  const values = [];
  for (const [kind, ...operands] of nodes) values.push(KINDS[kind](operands, values, binding));
  return values;
}
