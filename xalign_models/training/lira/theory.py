r"""Bounds on the distance of a representation from the ideal one: the paper's, and one that always holds.

``z = [g(x), h(y)]`` is the output of the two paths for a text x and its translation y, ``z* = [h(y*), h(y*)]`` the
output for an ideal translation y* of the same meaning: ``p(s|y*) = p(s|x)``. With ``||g(x) - h(y)|| <= eps1``
(observable), ``KL(p(s|x) || p(s|y)) <= eps2`` and ``h(y) = E[phi(s)]``, ``||phi(s)|| <= C``:

- Pinsker: ``||h(y) - h(y*)|| <= t := C sqrt(2 eps2)``;
- ``||g(x) - h(y*)|| <= eps1 + t``, and the blocks are orthogonal: ``||z - z*|| <= sqrt((eps1 + t)^2 + t^2)``;
- which is at most ``eps1 + sqrt(2) t = eps1 + 2 C sqrt(eps2)``.

The paper's ``eps1 + C sqrt(2 eps2)`` (eq. 10) holds only if eps1 bounds ``||g(x) - h(y*)||``, which is not observable.
"""

import math

from xalign_models.errors import ModelError


def _check(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ModelError(f"{name} {value}: at least 0.")


def bound_printed(epsilon_1: float, epsilon_2: float, c: float, lipschitz: float = 1.0) -> float:
    """Eq. 10 (eq. 15 with a Lipschitz constant): ``L (eps1 + C sqrt(2 eps2))``, which can be violated.

    Args:
        epsilon_1: Observed distance of the two paths.
        epsilon_2: Divergence of the translation's meaning, in nats.
        c: Largest norm of a feature.
        lipschitz: Lipschitz constant of the downstream head.

    Raises:
        ModelError: A value is negative.
    """
    _check(epsilon_1=epsilon_1, epsilon_2=epsilon_2, c=c, lipschitz=lipschitz)
    return lipschitz * (epsilon_1 + c * math.sqrt(2 * epsilon_2))


def bound_safe(epsilon_1: float, epsilon_2: float, c: float, lipschitz: float = 1.0) -> float:
    """``L (eps1 + 2 C sqrt(eps2))``, which holds for observable distances; arguments as in :func:`bound_printed`.

    Raises:
        ModelError: A value is negative.
    """
    _check(epsilon_1=epsilon_1, epsilon_2=epsilon_2, c=c, lipschitz=lipschitz)
    return lipschitz * (epsilon_1 + 2 * c * math.sqrt(epsilon_2))


def information_gain(signal: float, first: float, second: float) -> float:
    """Eq. 24 for Gaussian channels: the nats that a second path adds, ``I(S; G, H) - I(S; G)``, at least 0.

    Args:
        signal: Variance of the meaning.
        first: Variance of the first path's noise.
        second: Variance of the second path's noise.

    Raises:
        ModelError: A variance is negative, or the variance of a noise is zero.
    """
    _check(signal=signal)
    if not (first > 0 and second > 0):
        raise ModelError(f"noise variances {first}, {second}: above 0.")
    joint = 0.5 * math.log1p(signal / first + signal / second)
    return joint - 0.5 * math.log1p(signal / first)
