"""Small workloads behind the oracles in this folder, for any namespace `te` of tensor-expression functions.

Each function returns its input tensors, then the output, all float32. Order, names and attributes matter:
the oracles refer to stages by position. `te` has placeholder, compute, reduce_axis, sum, max, min, exp, sqrt,
if_then_else, all, const, indexdiv, and max2 (the binary maximum).
"""
# ruff: noqa: B905, E741


def matmul(te, n=64, m=96, k=128):
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return [A, B, C]


def matmul_add(te, n=64, l=128, m=96):
    A, B, C = (
        te.placeholder((n, l), name="A"),
        te.placeholder((l, m), name="B"),
        te.placeholder((n, m), name="C"),
    )
    k = te.reduce_axis((0, l), name="k")
    M = te.compute(
        (n, m),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((n, m), lambda i, j: M[i, j] + C[i, j], name="out")
    return [A, B, C, out]


def skinny_matmul(te, n=8, m=8, k=512):
    return matmul(te, n, m, k)


def two_matmuls(te, n=32):
    A, B, D = (te.placeholder((n, n), name=x) for x in "ABD")
    k1, k2 = te.reduce_axis((0, n), name="k1"), te.reduce_axis((0, n), name="k2")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k1] * B[k1, j], axis=k1), name="C")
    E = te.compute((n, n), lambda i, j: te.sum(C[i, k2] * D[k2, j], axis=k2), name="E")
    return [A, B, D, E]


def batch_matmul(te, b=4, n=32, m=48, k=64):
    A, B = te.placeholder((b, n, k), name="A"), te.placeholder((b, k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [A, B, te.compute((b, n, m), lambda q, i, j: te.sum(A[q, i, r] * B[q, r, j], axis=r), name="C")]


def _pad(te, x, pads, name="Pad"):
    shape = [int(d) + 2 * p for d, p in zip(x.shape, pads)]

    def at(*i):
        inside = [c for v, d, p in zip(i, x.shape, pads) if p for c in (v >= p, v < int(d) + p)]
        return te.if_then_else(
            te.all(*inside), x(*[v - p for v, p in zip(i, pads)]), te.const(0.0, "float32")
        )

    return te.compute(shape, at, name=name)


def conv2d(te, h=14, w=14, ci=16, co=32, k=3, stride=1, pad=1):
    X, W = te.placeholder((1, h, w, ci), name="X"), te.placeholder((k, k, ci, co), name="W")
    P = _pad(te, X, (0, pad, pad, 0)) if pad else X
    rh, rw, rc = (
        te.reduce_axis((0, k), name="rh"),
        te.reduce_axis((0, k), name="rw"),
        te.reduce_axis((0, ci), name="rc"),
    )
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    C = te.compute(
        (1, oh, ow, co),
        lambda n, y, x, c: te.sum(
            P[n, y * stride + rh, x * stride + rw, rc] * W[rh, rw, rc, c], axis=[rh, rw, rc]
        ),
        name="Conv",
    )
    return [X, W, C]


def conv2d_bn_relu(te, h=14, w=14, ci=16, co=32):
    X, W, C = conv2d(te, h, w, ci, co)
    S, T = te.placeholder((co,), name="Scale"), te.placeholder((co,), name="Shift")
    M = te.compute(C.shape, lambda n, y, x, c: C[n, y, x, c] * S[c], name="Mul")
    A = te.compute(C.shape, lambda n, y, x, c: M[n, y, x, c] + T[c], name="Add")
    R = te.compute(C.shape, lambda n, y, x, c: te.max2(A[n, y, x, c], te.const(0.0, "float32")), name="Relu")
    return [X, W, S, T, R]


def depthwise(te, h=28, w=28, c=32, k=3):
    X, W = te.placeholder((1, h, w, c), name="X"), te.placeholder((k, k, c), name="W")
    P = _pad(te, X, (0, 1, 1, 0))
    rh, rw = te.reduce_axis((0, k), name="rh"), te.reduce_axis((0, k), name="rw")
    return [
        X,
        W,
        te.compute(
            (1, h, w, c),
            lambda n, y, x, q: te.sum(P[n, y + rh, x + rw, q] * W[rh, rw, q], axis=[rh, rw]),
            name="Conv",
        ),
    ]


def grouped(te, h=14, w=14, ci=32, co=64, g=4):
    cig, cog = ci // g, co // g
    X, W = te.placeholder((1, h, w, ci), name="X"), te.placeholder((3, 3, cig, co), name="W")
    P = _pad(te, X, (0, 1, 1, 0))
    rh, rw, rc = (
        te.reduce_axis((0, 3), name="rh"),
        te.reduce_axis((0, 3), name="rw"),
        te.reduce_axis((0, cig), name="rc"),
    )
    return [
        X,
        W,
        te.compute(
            (1, h, w, co),
            lambda n, y, x, c: te.sum(
                P[n, y + rh, x + rw, te.indexdiv(c, cog) * cig + rc] * W[rh, rw, rc, c], axis=[rh, rw, rc]
            ),
            name="Conv",
        ),
    ]


def conv1d_dilated(te, l=64, ci=32, co=48, d=2):
    X, W = te.placeholder((1, l, ci), name="X"), te.placeholder((3, ci, co), name="W")
    P = _pad(te, X, (0, d, 0))
    rk, rc = te.reduce_axis((0, 3), name="rk"), te.reduce_axis((0, ci), name="rc")
    return [
        X,
        W,
        te.compute(
            (1, l, co),
            lambda n, x, c: te.sum(P[n, x + rk * d, rc] * W[rk, rc, c], axis=[rk, rc]),
            name="Conv",
        ),
    ]


def softmax(te, m=64, n=80):
    X = te.placeholder((m, n), name="X")
    k1, k2 = te.reduce_axis((0, n), name="k1"), te.reduce_axis((0, n), name="k2")
    hi = te.compute((m,), lambda i: te.max(X[i, k1], axis=k1), name="RowMax")
    ex = te.compute((m, n), lambda i, j: te.exp(X[i, j] - hi[i]), name="Exp")
    su = te.compute((m,), lambda i: te.sum(ex[i, k2], axis=k2), name="RowSum")
    return [X, te.compute((m, n), lambda i, j: ex[i, j] / su[i], name="Softmax")]


def norm(te, b=4, m=32, n=48):
    X = te.placeholder((b, m, n), name="X")
    i, j = te.reduce_axis((0, m), name="i"), te.reduce_axis((0, n), name="j")
    S = te.compute((b,), lambda q: te.sum(X[q, i, j] * X[q, i, j], axis=[i, j]), name="S")
    return [X, te.compute((b,), lambda q: te.sqrt(S[q]), name="Norm")]


def row_min(te, m=10, n=1024):
    X = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    return [X, te.compute((m,), lambda i: te.min(X[i, k], axis=k), name="Min")]


def max_pool(te, h=28, w=28, c=16):
    X = te.placeholder((1, h, w, c), name="X")
    rh, rw = te.reduce_axis((0, 2), name="rh"), te.reduce_axis((0, 2), name="rw")
    return [
        X,
        te.compute(
            (1, h // 2, w // 2, c),
            lambda n, y, x, q: te.max(X[n, y * 2 + rh, x * 2 + rw, q], axis=[rh, rw]),
            name="Pool",
        ),
    ]


def elementwise(te, m=96, n=130):
    X, Y = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="Y")
    A = te.compute((m, n), lambda i, j: X[i, j] * te.const(2.0, "float32") + Y[i, j], name="A")
    B = te.compute((m, n), lambda i, j: te.exp(A[i, j]), name="B")
    return [X, Y, te.compute((m, n), lambda i, j: B[i, j] / (B[i, j] + te.const(1.0, "float32")), name="Out")]


def transpose_bmm_softmax(te, b=2, s=32, h=4, d=16):
    Q, K = te.placeholder((b, s, h, d), name="Q"), te.placeholder((b, s, h, d), name="K")
    Qt = te.compute((b, h, s, d), lambda n, q, i, e: Q[n, i, q, e], name="Qt")
    Kt = te.compute((b, h, d, s), lambda n, q, e, j: K[n, j, q, e], name="Kt")
    r = te.reduce_axis((0, d), name="r")
    G = te.compute((b, h, s, s), lambda n, q, i, j: te.sum(Qt[n, q, i, r] * Kt[n, q, r, j], axis=r), name="G")
    k1, k2 = te.reduce_axis((0, s), name="k1"), te.reduce_axis((0, s), name="k2")
    hi = te.compute((b, h, s), lambda n, q, i: te.max(G[n, q, i, k1], axis=k1), name="RowMax")
    ex = te.compute((b, h, s, s), lambda n, q, i, j: te.exp(G[n, q, i, j] - hi[n, q, i]), name="Exp")
    su = te.compute((b, h, s), lambda n, q, i: te.sum(ex[n, q, i, k2], axis=k2), name="RowSum")
    return [Q, K, te.compute((b, h, s, s), lambda n, q, i, j: ex[n, q, i, j] / su[n, q, i], name="Softmax")]
