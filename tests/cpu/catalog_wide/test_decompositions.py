"""Decompositions of matrices: what they multiply to, gradients, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream.autograd import gradcheck, gradgradcheck

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def matrices(dtype, *shape, seed=0):
    random = np.random.default_rng(seed)
    made = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * random.standard_normal(shape)
    return made.astype(dtype)


def positive(dtype, *shape):
    x = matrices(dtype, *shape)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1], dtype=dtype)


def near(found, expected):
    single = np.asarray(expected).dtype in (np.float32, np.complex64)
    spread = 1e-4 if single else 1e-10
    np.testing.assert_allclose(np.asarray(found), expected, atol=spread, rtol=spread)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_factors_multiply_to(dtype):
    tall, square = matrices(dtype, 2, 4, 3), positive(dtype, 2, 3, 3)
    for array in (tall, np.swapaxes(tall, -1, -2)):
        x = ss.from_numpy(np.ascontiguousarray(array))
        for full in (False, True):
            u, s, vh = ss.linalg.svd(x, full_matrices=full)
            k = s.shape[-1]
            near(u[..., :k] * s.unsqueeze(-2).to(u.dtype) @ vh[..., :k, :], array)
            near(u.conj().transpose(-1, -2) @ u,
                 np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), (2, *u.shape[-1:] * 2)))
        for mode in ("reduced", "complete"):
            q, r = ss.linalg.qr(x, mode)
            near(q @ r, array)
            near(r, np.triu(r))
        near(ss.linalg.pinv(x), np.linalg.pinv(array))
    m = ss.from_numpy(square)
    lower = ss.linalg.cholesky(m)
    near(lower @ lower.conj().transpose(-1, -2), square)
    near(ss.linalg.cholesky(m, upper=True), np.conj(np.swapaxes(lower, -1, -2)))
    values, vectors = ss.linalg.eigh(m)
    scaled = vectors * values.unsqueeze(-2).to(vectors.dtype)
    near(scaled @ vectors.conj().transpose(-1, -2), square)
    near(ss.linalg.eigvalsh(m), np.linalg.eigvalsh(square))
    assert values.dtype == ss.from_numpy(square.real.copy()).dtype


def hermitian(x):
    return x @ x.conj().transpose(-1, -2) + 2 * ss.eye(x.shape[-1], dtype=x.dtype)


FUNCTIONS = {
    "cholesky": lambda x: ss.linalg.cholesky(hermitian(x)),
    "upper": lambda x: ss.linalg.cholesky(hermitian(x), upper=True),
    "eigvalsh": lambda x: ss.linalg.eigvalsh(hermitian(x)),
    # The vectors' phase is open: a function of each that does not depend on it.
    "eigh": lambda x: ss.linalg.eigh(hermitian(x)).eigenvectors.abs(),
    "qr": lambda x: [part.abs() for part in ss.linalg.qr(x)],
    "solve": lambda x: ss.linalg.solve(hermitian(x), x[..., 0]),
    "right": lambda x: ss.linalg.solve(hermitian(x), x, left=False),
    "det": lambda x: ss.linalg.det(x),
    "slogdet": lambda x: list(ss.linalg.slogdet(x)),
    "nuc": lambda x: ss.linalg.norm(x[0], "nuc"),
    "multi_dot": lambda x: ss.linalg.multi_dot([x, x, x]),
    "power": lambda x: ss.linalg.matrix_power(hermitian(x), -2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES[1::2])
def test_gradients(name, dtype):
    x = ss.from_numpy(matrices(dtype, 2, 3, 3)).requires_grad_(True)
    assert gradcheck(FUNCTIONS[name], (x,))
    assert gradgradcheck(FUNCTIONS[name], (x,), atol=1e-4)


def test_the_determinant_of_a_singular_matrix_has_a_gradient():
    x = ss.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=ss.float64, requires_grad=True)
    ss.det(x).backward()
    near(x.grad, [[4.0, -2.0], [-2.0, 1.0]])


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: ss.linalg.inv(ss.zeros(2, 2)), ss.linalg.LinAlgError, "Singular matrix"),
    (lambda: ss.linalg.cholesky(-ss.eye(2)), ss.linalg.LinAlgError, "[Pp]ositive definite"),
    (lambda: ss.linalg.inv(ss.zeros(2, 3)), RuntimeError, "square matrices, but they are 2 by 3"),
    (lambda: ss.linalg.inv(ss.zeros(2)), RuntimeError, "at least 2 dimensions"),
    (lambda: ss.linalg.det(ss.zeros(2, 2, dtype=ss.int64)), RuntimeError, "Got int64"),
    (lambda: ss.linalg.solve(ss.eye(2), ss.ones(3, 1)), RuntimeError, "Incompatible shapes"),
    (lambda: ss.linalg.solve(ss.eye(2), ss.ones(2).double()), RuntimeError, "same dtype"),
    (lambda: ss.linalg.qr(ss.eye(2), "some"), RuntimeError, "unrecognized mode 'some'"),
    (lambda: ss.linalg.eigh(ss.eye(2), "X"), RuntimeError, "'L' or 'U'"),
    (lambda: ss.linalg.matrix_norm(ss.eye(2), 3), RuntimeError, "Order 3 not supported"),
    (lambda: ss.linalg.matrix_norm(ss.ones(2)), RuntimeError, "at least 2 dimensions"),
    (lambda: ss.linalg.matrix_norm(ss.eye(2), dim=(0, -2)), RuntimeError, "different dims"),
    (lambda: ss.linalg.norm(ss.ones(2), "fro"), RuntimeError, "1D or 2D or dim of length 2"),
    (lambda: ss.linalg.multi_dot([ss.eye(2)]), RuntimeError, "at least 2 tensors"),
    (lambda: ss.linalg.svd(ss.eye(2).requires_grad_()), NotImplementedError, "gradient"),
])
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_ranks():
    x = np.diag([1.0, 1e-3, 0.0]).astype(np.float32)
    assert ss.linalg.matrix_rank(ss.from_numpy(x)).item() == 2
    assert ss.linalg.matrix_rank(ss.from_numpy(x), tol=0.1).item() == 1


def test_meta():
    x = ss.zeros(2, 4, 3, device="meta")
    assert [part.shape for part in ss.linalg.svd(x)] == [(2, 4, 4), (2, 3), (2, 3, 3)]
    assert ss.linalg.inv(ss.zeros(5, 3, 3, device="meta")).shape == (5, 3, 3)
