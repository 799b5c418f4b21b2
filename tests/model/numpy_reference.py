"""The papers' formulas in plain float64 numpy, written from the papers: loops over i and j.

Nothing here is shared with the package except the names of its parameters.
"""

import math

import numpy as np

EPS = 1e-5


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPS) * scale + bias


def rms_norm(x, scale):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * scale


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def over_pairs(length, function):
    """[S, S] (or [S, S, ...]) of function(i, j)."""
    return np.array([[function(i, j) for j in range(length)] for i in range(length)])


# ------------------------------------------------------------------ biases [H, S, S] by definition


def t5_bucket(distance, bins=32, farthest=128):
    """Exact: n^steps * exact^s >= exact^steps * farthest^s in integers, no logarithm."""
    half, n = bins // 2, abs(int(distance))
    exact = half // 2
    steps = half - exact
    if n >= exact:
        reached = (s for s in range(steps) if n**steps * exact**s >= exact**steps * farthest**s)
        n = exact + max(reached)
    return n + (half if distance > 0 else 0)


def t5_bias(table, length, bins=32, farthest=128):
    return over_pairs(length, lambda i, j: table[t5_bucket(j - i, bins, farthest)]).transpose(
        2, 0, 1
    )


def alibi_bias(heads, length):
    assert heads & (heads - 1) == 0
    slopes = [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    return np.array([over_pairs(length, lambda i, j, m=m: -m * abs(i - j)) for m in slopes])


def attenuated_bias(heads, length, left, right, gain):
    kernel = over_pairs(length, lambda i, j: math.exp(-(left if j < i else right) * (j - i) ** 2))
    return np.array([gain * kernel / kernel.sum(1, keepdims=True)] * heads)


def attenuated_table_bias(table, heads, length, longest):
    """`table` of a layer, [longest or 2 longest - 1, H or 1]."""

    def value(i, j):
        row = abs(j - i) if len(table) == longest else j - i + longest - 1
        return np.broadcast_to(table[row], heads)

    return over_pairs(length, value).transpose(2, 0, 1)


def position_dots(weights, p_i, p_j):
    """(p_i U^Q)(p_j U^K)^T for each head, unscaled."""
    p_i, p_j = (layer_norm(p, weights["norm_scale"], weights["norm_bias"]) for p in (p_i, p_j))
    q = np.tensordot(p_i, weights["query_kernel"], 1) + weights["query_bias"]
    k = np.tensordot(p_j, weights["key_kernel"], 1) + weights["key_bias"]
    return (q * k).sum(-1)


def untied_bias(weights, length):
    """(p_i U^Q)(p_j U^K)^T, unscaled."""
    table = weights["table"]
    return over_pairs(length, lambda i, j: position_dots(weights, table[i], table[j])).transpose(
        2, 0, 1
    )


def reset(v, theta_1, theta_2):
    """Equation 10 of the TUPE paper."""
    v = v.copy()
    heads, length, _ = v.shape
    for h in range(heads):
        for i in range(length):
            for j in range(length):
                if i == 0:
                    v[h, i, j] = theta_1[h]
                elif j == 0:
                    v[h, i, j] = theta_2[h]
    return v


# ------------------------------------------------------------------ logits [H, S, S] of one row


def logits(position, q, k, shared, own, heads, local=False):
    """All logits of one row of the batch; q, k are [S, H, d]."""

    def rotated(q, k):
        return rope_dots(q, k, position.options, local)

    length, _, d = q.shape
    absolute, relative = shared.get("absolute", {}), shared.get("relative", {})
    own_relative = own.get("relative", {})
    dots = plain_dots(q, k)
    products = 1
    bias = np.zeros((heads, length, length))

    if position.absolute == "mixed":
        products += 3
        u = own_relative["u_bias"] if position.relative == "transformer_xl" else 0
        pair_dots = rotated if position.relative == "rope" else plain_dots
        dots = mixed_dots(absolute, q + u, k, pair_dots)
    elif position.relative == "rope":
        dots = rotated(q, k)
    elif position.relative == "transformer_xl":
        dots = plain_dots(q + own_relative["u_bias"], k)
    if position.relative == "transformer_xl":
        dots = dots + transformer_xl_dots(own_relative, q)
    if position.relative == "shaw":
        dots = dots + shaw_dots(own_relative["r"], q, position.max_distance)
    if position.relative == "deberta":
        products += 2
        dots = dots + deberta_dots(relative["r"], own_relative, q, k, position.max_distance)
    if position.relative == "deberta_released":
        products += 2
        dots = dots + deberta_released_dots(
            relative["r"], own_relative, q, k, position.relative_bins
        )
    if position.absolute == "untied":
        products += 1
        v = untied_bias(absolute, length)
        if position.untie_cls:
            p_1, p_2 = absolute["p_theta_1"], absolute["table"][0]
            v = reset(v, *(position_dots(absolute, p, p) for p in (p_1, p_2)))
        bias += position.options.get("untied_gain", 1) * v / math.sqrt(products * d)
    relative_bias = {
        "t5": lambda: t5_bias(
            relative["table"], length, position.relative_bins, position.max_distance
        ),
        "alibi": lambda: alibi_bias(heads, length),
        "attenuated": lambda: attenuated_bias(
            heads,
            length,
            position.decay_left,
            position.decay_right,
            position.attenuation_gain,
        ),
        "attenuated_layer": lambda: attenuated_table_bias(
            own_relative["table"], heads, length, position.max_length
        ),
        "attenuated_layer_head": lambda: attenuated_table_bias(
            own_relative["table"], heads, length, position.max_length
        ),
    }.get(position.relative)
    if relative_bias:
        b = relative_bias()
        if position.untie_cls:
            if position.relative == "t5":
                bins = position.relative_bins
                b = reset(b, relative["table"][bins // 2], relative["table"][bins])
            else:
                theta = own_relative if "theta_1" in own_relative else relative
                b = reset(b, theta["theta_1"], theta["theta_2"])
        bias += position.options.get("t5_gain", 1) * b
    return dots / math.sqrt(products * d) + bias


def plain_dots(q, k):
    return np.einsum("ihd,jhd->hij", q, k)


def mixed_dots(weights, q, k, dots):
    """BERT-A^d: four terms, each on its own; with RoPE all four are of rotated vectors."""
    length = len(q)
    p = layer_norm(weights["table"][:length], weights["norm_scale"], weights["norm_bias"])
    pq = np.tensordot(p, weights["query_kernel"], 1) + weights["query_bias"]
    pk = np.tensordot(p, weights["key_kernel"], 1) + weights["key_bias"]
    pairs = [(q, k), (q, pk), (pq, k), (pq, pk)]
    return sum(dots(a, b) for a, b in pairs)


def shaw_dots(r, q, farthest):
    def value(i, j):
        clipped = max(-farthest, min(farthest, j - i))
        return q[i] @ r[clipped + farthest]

    return over_pairs(len(q), value).transpose(2, 0, 1)


def deberta_dots(r, weights, q, k, farthest):
    def delta(i, j):
        if i - j <= -farthest:
            return 0
        if i - j >= farthest:
            return 2 * farthest - 1
        return i - j + farthest

    def value(i, j):
        key = np.tensordot(r[delta(i, j)], weights["key_kernel"], 1)
        query = np.tensordot(r[delta(j, i)], weights["query_kernel"], 1)
        return (q[i] * key).sum(-1) + (k[j] * query).sum(-1)

    return over_pairs(len(q), value).transpose(2, 0, 1)


def deberta_released_dots(r, weights, q, k, bins):
    """Both terms look to r at i - j; there are more bins here than distances that share them."""

    def value(i, j):
        row = r[max(-bins, min(bins - 1, i - j)) + bins]
        key = np.tensordot(row, weights["key_kernel"], 1) + weights["key_bias"]
        query = np.tensordot(row, weights["query_kernel"], 1) + weights["query_bias"]
        return (q[i] * key).sum(-1) + (k[j] * query).sum(-1)

    return over_pairs(len(q), value).transpose(2, 0, 1)


def transformer_xl_dots(weights, q):
    size = len(weights["kernel"])

    def value(i, j):
        angles = [(i - j) / 10000 ** (2 * m / size) for m in range(size // 2)]
        R = np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
        return ((q[i] + weights["v_bias"]) * np.tensordot(R, weights["kernel"], 1)).sum(-1)

    return over_pairs(len(q), value).transpose(2, 0, 1)


def rope_dots(q, k, options, local):
    """Equation 15 of the RoFormer paper as a d x d rotation matrix, planes (m, m + n/2) of n."""
    d = q.shape[-1]
    n = int(d * options.get("rope_share", 1)) // 2 * 2
    base = options.get("rope_base", 10000)
    if local:
        base = options.get("rope_local_base", 0) or base

    def rotation(position):
        matrix = np.eye(d)
        for m in range(n // 2):
            turn = base ** (-2 * m / n)
            if options.get("rope_precision") == "float16":
                turn = float(np.float16(turn))
            angle = position * turn
            a, b = m, m + n // 2
            matrix[a, a] = matrix[b, b] = math.cos(angle)
            matrix[a, b], matrix[b, a] = -math.sin(angle), math.sin(angle)
        return matrix

    def value(i, j):
        return ((q[i] @ rotation(i).T) * (k[j] @ rotation(j).T)).sum(-1)

    return over_pairs(len(q), value).transpose(2, 0, 1)


# ------------------------------------------------------------------ the encoder


def sinusoidal(length, size):
    p = np.zeros((length, size))
    for i in range(length):
        for m in range(size // 2):
            p[i, 2 * m] = math.sin(i / 10000 ** (2 * m / size))
            p[i, 2 * m + 1] = math.cos(i / 10000 ** (2 * m / size))
    return p


def nested(arrays):
    """{("a", "b"): x} -> {"a": {"b": x}} in float64."""
    tree = {}
    for path, array in arrays.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = np.asarray(array, np.float64)
    return tree


def layer_slice(tree, i):
    return {n: layer_slice(t, i) if isinstance(t, dict) else t[i] for n, t in tree.items()}


def is_global(config, layer):
    every = config.attention_global_every
    return every > 0 and layer % every == 0


def encode(config, arrays, tokens):
    """Hidden states [layers + 1][B, S, D] of the encoder, each row on its own."""
    encoder = nested(arrays)["encoder"]
    rows = [encode_row(config, encoder, row) for row in tokens]
    return [np.stack(layer) for layer in zip(*rows, strict=True)]


def encode_row(config, encoder, tokens):
    position, heads = config.position, config.num_heads
    shared = encoder.get("positions", {})
    words = tokens != config.pad_id

    def norm(w, y):
        if config.norm == "rms_norm":
            assert w.keys() == {"scale"}
            return rms_norm(y, w["scale"])
        return layer_norm(y, w["scale"], w.get("bias", 0))

    def linear(w, y, axes=1):
        return np.tensordot(y, w["kernel"], axes) + w.get("bias", 0)

    x = encoder["word_embedding"][tokens]
    if config.mask_dropout:
        is_mask = tokens == config.mask_id
        x = np.where(is_mask[:, None], 0, x * (1 - config.mask_dropout))
        x = x / (1 - is_mask.sum() / words.sum())
    if position.absolute == "added":
        x = x + shared["absolute"]["table"][: len(tokens)]
    if position.absolute == "sinusoidal":
        # The paper scales the words up instead; the LayerNorm that follows sees only the ratio.
        x = x + sinusoidal(*x.shape) / math.sqrt(x.shape[-1])
    x = norm(encoder["embedding_norm"], x) * words[:, None]
    states = [x]
    for i in range(config.num_layers):
        layer = layer_slice(encoder["layers"], i)

        def attend(y, layer=layer, i=i):
            attention = layer["attention"]
            q, k, v = np.moveaxis(linear(attention["query_key_value"], y), 1, 0)
            if config.query_key_norm:
                q, k = norm(attention["query_norm"], q), norm(attention["key_norm"], k)
            own = attention.get("positions", {})
            is_local = config.attention_window > 0 and not is_global(config, i)
            a = logits(position, q, k, shared, own, heads, is_local)
            a[:, :, ~words] = -np.inf
            if is_local:
                far = over_pairs(len(y), lambda i, j: 2 * abs(i - j) > config.attention_window)
                # A token of padding may see none: what it then holds is compared with nothing.
                a[:, far & words[:, None]] = -np.inf
            mixed = np.einsum("hij,jhd->ihd", softmax(a), v)
            return linear(attention["output"], mixed, 2)

        def mlp(y, layer=layer):
            activation = {"gelu": gelu, "silu": silu}[config.activation]
            if config.gated_mlp:
                y = activation(linear(layer["mlp_gate"], y)) * linear(layer["mlp_in"], y)
            else:
                y = activation(linear(layer["mlp_in"], y))
            return linear(layer["mlp_out"], y)

        for name, branch in (("attention_norm", attend), ("mlp_norm", mlp)):
            w = layer[name]
            if not config.pre_layer_norm:
                x = norm(w, x + branch(x))
            elif i == 0 and name == "attention_norm" and not config.first_attention_norm:
                x = x + branch(x)
            else:
                x = x + branch(norm(w, x))
        states.append(x)
    if config.pre_layer_norm:
        states[-1] = norm(encoder["final_norm"], x)
    return states
