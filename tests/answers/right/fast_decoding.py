"""Right answers to lesson 13's exercises, in many forms."""

import math

import torch
import torch.nn.functional as F

from course_utils.lessons.fast_decoding import append_to_cache, feature_map, linear_attention_step
from course_utils.lessons.multi_head import attend
from course_utils.lessons.self_attention import apply_rotary

# ---- append_to_cache


def append_to_cache__cut_in_front(cached, new, window=None):
    rows = torch.cat((cached, new), -2)
    if window is not None:
        first = max(0, rows.shape[-2] - window)
        rows = rows[..., first:, :]
    return rows


def append_to_cache__narrow(cached, new, window=None):
    rows = torch.concat([cached, new], dim=-2)
    n_kept = rows.size(-2) if window is None else min(window, rows.size(-2))
    return rows.narrow(-2, rows.size(-2) - n_kept, n_kept)


def append_to_cache__empty_and_filled(cached, new, window=None):
    n_old, n_new = cached.shape[-2], new.shape[-2]
    rows = cached.new_empty(*cached.shape[:-2], n_old + n_new, cached.shape[-1])
    rows[..., :n_old, :] = cached
    rows[..., n_old:, :] = new
    return rows[..., -(window or n_old + n_new) :, :] if n_old + n_new else rows


def append_to_cache__swapped_dimensions(cached, new, window=None):
    columns = torch.cat([cached.mT, new.mT], dim=-1)
    if window:
        columns = columns[..., -window:]
    return columns.mT


def append_to_cache__padded(cached, new, window=None):
    rows = F.pad(cached, (0, 0, 0, new.shape[-2])) + F.pad(new, (0, 0, cached.shape[-2], 0))
    return rows[..., -window:, :] if window else rows


def append_to_cache__list_of_rows(cached, new, window=None):
    rows = [*cached.unbind(-2), *new.unbind(-2)]
    if window is not None:
        rows = rows[-window:]
    return torch.stack(rows, dim=-2)


def append_to_cache__row_after_row(cached, new, window=None):
    rows = cached
    for i in range(new.shape[-2]):
        rows = torch.cat([rows, new[..., i : i + 1, :]], dim=-2)
        if window is not None:
            rows = rows[..., -window:, :]
    return rows


def append_to_cache__index(cached, new, window=None):
    rows = torch.cat([cached, new], dim=-2)
    places = torch.arange(rows.shape[-2], device=rows.device)
    return rows if window is None else rows.index_select(-2, places[-window:])


def append_to_cache__old_rows_leave_first(cached, new, window=None):
    if window is None:
        return torch.cat([cached, new], dim=-2)
    new = new[..., -window:, :]
    room = window - new.shape[-2]
    old = cached[..., max(0, cached.shape[-2] - room) :, :]
    return torch.cat([old, new], dim=-2)


def append_to_cache__tensor_split(cached, new, window=None):
    rows = torch.cat([cached, new], dim=cached.ndim - 2)
    if window is None or window >= rows.shape[-2]:
        return rows
    return rows.tensor_split([rows.shape[-2] - window], dim=-2)[1]


# ---- decode_with_cache


def decode_with_cache__offset(queries, keys, values, cached_keys, cached_values, attend=attend):
    new = torch.arange(keys.shape[-2], device=keys.device) + cached_keys.shape[-2]
    k = torch.cat([cached_keys, apply_rotary(keys, new)], dim=-2)
    v = torch.cat([cached_values, values], dim=-2)
    return attend(apply_rotary(queries, new), k, v, is_causal=True), k, v


def decode_with_cache__last_positions(queries, keys, values, cached_keys, cached_values, attend=attend):
    n = keys.shape[-2]
    values = append_to_cache(cached_values, values)
    positions = torch.arange(values.shape[-2], device=values.device)[-n:]
    keys = append_to_cache(cached_keys, apply_rotary(keys, positions))
    return attend(apply_rotary(queries, positions), keys, values, is_causal=True), keys, values


def decode_with_cache__named(queries, keys, values, cached_keys, cached_values, attend=attend):
    start = cached_values.size(-2)
    places = torch.linspace(start, start + keys.size(-2) - 1, keys.size(-2), device=keys.device).round().long()
    keys = torch.cat([cached_keys, apply_rotary(keys, positions=places)], dim=-2)
    values = torch.cat([cached_values, values], dim=-2)
    queries = apply_rotary(queries, positions=places)
    outputs = attend(queries=queries, keys=keys, values=values, is_causal=True)
    return outputs, keys, values


def decode_with_cache__by_padding(queries, keys, values, cached_keys, cached_values, attend=attend):
    n = cached_keys.shape[-2]

    def turn(x):
        padded = F.pad(x, (0, 0, n, 0))
        return apply_rotary(padded, torch.arange(padded.shape[-2], device=x.device))[..., n:, :]

    keys = append_to_cache(cached_keys, turn(keys))
    values = append_to_cache(cached_values, values)
    return attend(turn(queries), keys, values, is_causal=True), keys, values


def decode_with_cache__turned_together(queries, keys, values, cached_keys, cached_values, attend=attend):
    first, n = cached_keys.shape[-2], keys.shape[-2]
    positions = torch.arange(first, first + n, device=keys.device)
    queries, keys = (apply_rotary(x, positions) for x in (queries, keys))
    cache = []
    for old, new in ((cached_keys, keys), (cached_values, values)):
        cache.append(append_to_cache(old, new))
    return (attend(queries, *cache, is_causal=True), *cache)


def decode_with_cache__two_rotations(queries, keys, values, cached_keys, cached_values, attend=attend):
    n_old, n = cached_keys.shape[-2], keys.shape[-2]
    shift = torch.full((n,), n_old, device=keys.device)
    inside = torch.arange(n, device=keys.device)
    keys = append_to_cache(cached_keys, apply_rotary(keys, inside + shift))
    values = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, shift + inside), keys, values, is_causal=True), keys, values


def decode_with_cache__mask(queries, keys, values, cached_keys, cached_values, attend=attend):
    """The mask is made here; there is one for all heads."""
    n_old, n = cached_keys.shape[-2], keys.shape[-2]
    places = torch.arange(n_old + n, device=keys.device)
    keys = append_to_cache(cached_keys, apply_rotary(keys, places[n_old:]))
    values = append_to_cache(cached_values, values)
    mask = places <= places[n_old:, None]
    return attend(apply_rotary(queries, places[n_old:]), keys, values, mask), keys, values


def decode_with_cache__tuple_of_range(queries, keys, values, cached_keys, cached_values, attend=attend):
    start = cached_keys.shape[-2]
    t = torch.tensor(list(range(start, start + queries.shape[-2])), device=queries.device)
    all_keys = torch.cat((cached_keys, apply_rotary(keys, t)), dim=-2)
    all_values = torch.cat((cached_values, values), dim=-2)
    return (attend(apply_rotary(queries, t), all_keys, all_values, None, True), all_keys, all_values)


def decode_with_cache__list(queries, keys, values, cached_keys, cached_values, attend=attend):
    places = torch.ones(keys.shape[-2], device=keys.device, dtype=torch.int64).cumsum(0) - 1
    places = places + cached_keys.shape[-2]
    result = []
    keys = append_to_cache(cached_keys, apply_rotary(keys, places))
    values = append_to_cache(cached_values, values)
    result.append(attend(apply_rotary(queries, places), keys, values, is_causal=True))
    result += [keys, values]
    return tuple(result)


# ---- kv_cache_bytes


def kv_cache_bytes__product(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    return math.prod((2, n_tokens, n_layers, d_model // n_heads, n_kv_heads, bytes_per_number, batch))


def kv_cache_bytes__keys_and_values(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    keys = values = n_tokens * n_kv_heads * (d_model // n_heads)
    return batch * n_layers * (keys + values) * bytes_per_number


def kv_cache_bytes__share_of_the_heads(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    return 2 * batch * n_tokens * n_layers * bytes_per_number * d_model * n_kv_heads // n_heads


def kv_cache_bytes__sum_over_layers(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    d_k = d_model // n_heads
    return sum(2 * batch * n_tokens * n_kv_heads * d_k * bytes_per_number for _ in range(n_layers))


def kv_cache_bytes__from_shapes(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    shape = (batch, n_kv_heads, n_tokens, d_model // n_heads)
    one = math.prod(shape) * bytes_per_number
    return n_layers * (one + one)


def kv_cache_bytes__divmod(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    d_k, _ = divmod(d_model, n_heads)
    return bytes_per_number * 2 * d_k * n_kv_heads * n_layers * n_tokens * batch


def kv_cache_bytes__shift(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    return (n_tokens * n_layers * (d_model // n_heads) * n_kv_heads * bytes_per_number * batch) << 1


def kv_cache_bytes__steps(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    size = d_model // n_heads
    size *= n_kv_heads
    size *= 2
    size *= n_layers
    size *= n_tokens
    size *= bytes_per_number
    return size * batch


def kv_cache_bytes__queries_per_key(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    width = d_model * n_kv_heads // n_heads  # all keys of one token, side by side
    return batch * n_layers * n_tokens * (width + width) * bytes_per_number


# ---- linear_attention


def linear_attention__running_sums(queries, keys, values):
    q, k = feature_map(queries), feature_map(keys)
    states = (k.unsqueeze(-1) * values.unsqueeze(-2)).cumsum(dim=-3)
    totals = k.cumsum(dim=-2)
    return (q.unsqueeze(-2) @ states).squeeze(-2) / (q * totals).sum(dim=-1, keepdim=True)


def linear_attention__mask(queries, keys, values):
    n = queries.shape[-2]
    mask = torch.ones(n, n, dtype=torch.bool, device=queries.device).tril()
    products = feature_map(queries) @ feature_map(keys).mT
    weights = torch.where(mask, products, torch.zeros_like(products))
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ values


def linear_attention__loop(queries, keys, values):
    q, k = feature_map(queries), feature_map(keys)
    rows = []
    for i in range(q.shape[-2]):
        products = k[..., : i + 1, :] @ q[..., i, :].unsqueeze(-1)
        total = products.sum(dim=-2)
        rows.append((products * values[..., : i + 1, :]).sum(dim=-2) / total)
    return torch.stack(rows, dim=-2)


def linear_attention__einsum(queries, keys, values):
    q, k = F.elu(queries) + 1, F.elu(keys) + 1
    products = torch.einsum("...id,...jd->...ij", q, k).tril()
    return torch.einsum("...ij,...jv->...iv", products, values) / products.sum(-1, keepdim=True)


def linear_attention__normalize(queries, keys, values):
    products = torch.tril(feature_map(queries) @ feature_map(keys).transpose(-1, -2))
    return F.normalize(products, p=1, dim=-1, eps=0) @ values


def linear_attention__map_by_where(queries, keys, values):
    q, k = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (queries, keys))
    products = (q @ k.mT).tril()
    return (products @ values) / products.sum(-1).unsqueeze(-1)


def linear_attention__column_of_ones(queries, keys, values):
    ones = torch.ones_like(values[..., :1])
    sums = (feature_map(queries) @ feature_map(keys).mT).tril() @ torch.cat([values, ones], dim=-1)
    return sums[..., :-1] / sums[..., -1:]


def linear_attention__logarithms(queries, keys, values):
    products = feature_map(queries) @ feature_map(keys).mT
    hidden = torch.ones_like(products, dtype=torch.bool).triu(1)
    return products.log().masked_fill(hidden, -torch.inf).softmax(dim=-1) @ values


def linear_attention__steps(queries, keys, values):
    total = torch.zeros_like(keys[..., 0, :])
    state = total.unsqueeze(-1) * values[..., 0, :].unsqueeze(-2)
    outputs = []
    for q, k, v in zip(queries.unbind(-2), keys.unbind(-2), values.unbind(-2), strict=True):
        output, state, total = linear_attention_step(q, k, v, state, total)
        outputs.append(output)
    return torch.stack(outputs, dim=-2)


def linear_attention__scaled(queries, keys, values):
    q, k = feature_map(queries), feature_map(keys)
    products = (q / q.shape[-1] ** 0.5 @ k.mT).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


# ---- linear_attention_step


def linear_attention_step__outer(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    state = state + k[..., :, None] * value[..., None, :]
    total = total + k
    output = (q[..., :, None] * state).sum(dim=-2)
    return output / (q * total).sum(-1, keepdim=True), state, total


def linear_attention_step__einsum(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    state = state + torch.einsum("...k,...v->...kv", k, value)
    total = total + k
    top = torch.einsum("...k,...kv->...v", q, state)
    bottom = torch.einsum("...k,...k->...", q, total)
    return top / bottom[..., None], state, total


def linear_attention_step__transposed_read(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    new = state + (value.unsqueeze(-1) * k.unsqueeze(-2)).mT
    together = total + k
    read = (new.mT @ q.unsqueeze(-1)).squeeze(-1)
    return read / torch.linalg.vecdot(q, together).unsqueeze(-1), new, together


def linear_attention_step__elu(query, key, value, state, total):
    query, key = F.elu(query).add(1), F.elu(key).add(1)
    total = total.add(key)
    state = state.add(key.unsqueeze(-1).mul(value.unsqueeze(-2)))
    return query.unsqueeze(-2).matmul(state).squeeze(-2).div((query * total).sum(-1, True)), state, total


def linear_attention_step__one_table(query, key, value, state, total):
    """The total as one more column of the state."""
    q, k = feature_map(query), feature_map(key)
    values = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    table = torch.cat([state, total.unsqueeze(-1)], dim=-1) + k.unsqueeze(-1) * values.unsqueeze(-2)
    sums = (q.unsqueeze(-2) @ table).squeeze(-2)
    return sums[..., :-1] / sums[..., -1:], table[..., :-1], table[..., -1]


def linear_attention_step__own_part_apart(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    own = (q * k).sum(dim=-1, keepdim=True)
    top = (q.unsqueeze(-2) @ state).squeeze(-2) + own * value
    bottom = (q * total).sum(dim=-1, keepdim=True) + own
    return top / bottom, state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k


def linear_attention_step__weighted_query(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    q = q / (q * total).sum(dim=-1, keepdim=True)
    return (q.unsqueeze(-2) @ state).squeeze(-2), state, total


def linear_attention_step__clone_and_add(query, key, value, state, total):
    query, key = feature_map(query), feature_map(key)
    state, total = state.clone(), total.clone()
    state += key.unsqueeze(-1) * value.unsqueeze(-2)
    total += key
    return (query.unsqueeze(-2) @ state)[..., 0, :] / (query * total).sum(-1, keepdim=True), state, total


def linear_attention_step__loop_over_keys(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    rows = [state[..., i, :] + k[..., i, None] * value for i in range(k.shape[-1])]
    state, total = torch.stack(rows, dim=-2), total + k
    top = sum(q[..., i, None] * rows[i] for i in range(len(rows)))
    return top / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__expand(query, key, value, state, total):
    q, k = feature_map(query), feature_map(key)
    state = torch.addcmul(state, k.unsqueeze(-1).expand_as(state), value.unsqueeze(-2).expand_as(state))
    total = total + k
    return (q.unsqueeze(-1) * state).sum(-2) / (q * total).sum(-1).unsqueeze(-1), state, total
