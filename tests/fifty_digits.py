"""Minimisers of generalised linear models in the digits that mpmath is set to, naively."""

import mpmath as mp

from expost.losses import Logistic, Squared


def slope(loss, z, y):
    if isinstance(loss, Logistic):
        return -y / (1 + mp.exp(y * z - mp.mpf(loss.margin)))
    if isinstance(loss, Squared):
        return z - y
    h = mp.mpf(loss.width)
    return -y * min(max((1 + h - y * z) / (2 * h), mp.mpf(0)), mp.mpf(1))


def curvature(loss, z, y):
    if isinstance(loss, Logistic):
        e = mp.exp(-abs(z - y * mp.mpf(loss.margin)))
        return e / (1 + e) ** 2
    if isinstance(loss, Squared):
        return mp.mpf(1)
    h = mp.mpf(loss.width)
    return 1 / (2 * h) if abs(1 - y * z) <= h else mp.mpf(0)


def exact_rows(X, y):
    return [[mp.mpf(float(v)) for v in row] for row in X], [mp.mpf(float(v)) for v in y]


def gradient(rows, labels, loss, penalty, theta):
    z = [mp.fdot(x, theta) for x in rows]
    f = [slope(loss, a, b) for a, b in zip(z, labels, strict=True)]
    return z, [
        mp.fsum(a * x[j] for a, x in zip(f, rows, strict=True)) / len(rows) + penalty * theta[j]
        for j in range(len(theta))
    ]


def norm(vector):
    return mp.sqrt(mp.fdot(vector, vector))


def usage(computed, shifts):
    """∥computed − true∥ over error_bound of each neighbour; the reference's own error is taken off.

    The error of the distance counts too: it is at most that of the shift, and must be seen to be.
    ``shifts``: every true shift, with a bound on its own error.
    """
    shift, result = computed.shift, []
    assert len(shift) == len(shifts)
    for index, (wanted, error) in enumerate(shifts):
        gap = norm([mp.mpf(float(a)) - b for a, b in zip(shift[index], wanted, strict=True)])
        gap = max(gap, abs(mp.mpf(float(computed.distance[index])) - norm(wanted)))
        bound = mp.mpf(float(computed.error_bound[index]))
        assert bound > 0
        result.append(float(max(gap - error, mp.mpf(0)) / bound))
    return result


def shares_used(used):
    """Figures of a record: how much of the bounds was used, by loss and method."""
    return {
        "outside error_bound": sum(share > 1 for shares in used.values() for share in shares),
        "largest share of error_bound used": {k: max(v) for k, v in sorted(used.items())},
        "outside error_bound / 50": {
            k: sum(share > 1 / 50 for share in v) for k, v in sorted(used.items())
        },
        "digits": 50,
    }


def solve(rows, labels, loss, regularization, start):
    """The minimiser by Newton's method in fifty digits, and a proved bound on its error."""
    penalty = mp.mpf(regularization)
    theta = [mp.mpf(float(t)) for t in start]
    scale = max([abs(v) for x in rows for v in x] + [mp.mpf(10) ** -400])
    z, g = gradient(rows, labels, loss, penalty, theta)
    for _ in range(100):
        if norm(g) <= mp.mpf(10) ** -44 * scale:
            break
        step = _newton_direction(rows, labels, loss, penalty, z, g)
        trial = [t - s for t, s in zip(theta, step, strict=True)]
        z_there, g_there = gradient(rows, labels, loss, penalty, trial)
        if not norm(g_there) < norm(g) / 2:
            length = _line_minimum(rows, labels, loss, penalty, theta, z, step)
            if length == 0:
                break
            trial = [t - length * s for t, s in zip(theta, step, strict=True)]
            z_there, g_there = gradient(rows, labels, loss, penalty, trial)
        theta, z, g = trial, z_there, g_there
    return theta, norm(g) / penalty


def _newton_direction(rows, labels, loss, penalty, z, g):
    d, n = len(g), len(rows)
    weights = [curvature(loss, a, b) / n for a, b in zip(z, labels, strict=True)]
    hessian = mp.matrix(d, d)
    for a in range(d):
        for b in range(a + 1):
            hessian[a, b] = mp.fsum(w * x[a] * x[b] for w, x in zip(weights, rows, strict=True))
            hessian[b, a] = hessian[a, b]
        hessian[a, a] += penalty
    return list(mp.lu_solve(hessian, mp.matrix(g)))


def _line_minimum(rows, labels, loss, penalty, theta, z, step):
    along = [mp.fdot(x, step) for x in rows]
    inner, square = mp.fdot(theta, step), mp.fdot(step, step)

    def derivative(t):
        terms = (slope(loss, a - t * b, c) * -b for a, b, c in zip(z, along, labels, strict=True))
        return mp.fsum(terms) / len(rows) + penalty * (t * square - inner)

    low, high = mp.mpf(0), mp.mpf(1)
    while derivative(high) <= 0 and high < 2**80:
        high *= 2
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (middle, high) if derivative(middle) <= 0 else (low, middle)
    return low
