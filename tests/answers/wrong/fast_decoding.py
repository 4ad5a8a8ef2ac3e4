"""Wrong answers to lesson 13's exercises; each docstring says what is wrong."""

import torch
import torch.nn.functional as F

from course_utils.lessons.fast_decoding import append_to_cache, feature_map
from course_utils.lessons.language_model import attend_rotary
from course_utils.lessons.multi_head import attend
from course_utils.lessons.self_attention import apply_rotary

# ---- append_to_cache


def append_to_cache__in_front(cached, new, window=None):
    """The new rows come first."""
    rows = torch.cat([new, cached], dim=-2)
    return rows if window is None else rows[..., -window:, :]


def append_to_cache__dim_1(cached, new, window=None):
    """dim=1 are the tokens only where one dimension stands before them."""
    rows = torch.cat([cached, new], dim=1)
    return rows if window is None else rows[:, -window:]


def append_to_cache__dim_0(cached, new, window=None):
    """dim=0 are the tokens only without leading dimensions."""
    rows = torch.cat([cached, new])
    return rows if window is None else rows[-window:]


def append_to_cache__first_rows(cached, new, window=None):
    """With a window, the oldest rows stay."""
    return torch.cat([cached, new], dim=-2)[..., :window, :]


def append_to_cache__cut_before(cached, new, window=None):
    """Only the old rows are cut to the window: the new ones come on top."""
    if window is not None:
        cached = cached[..., -window:, :]
    return torch.cat([cached, new], dim=-2)


def append_to_cache__one_leaves(cached, new, window=None):
    """One old row leaves when the window is full, however many come in."""
    if window is not None and cached.shape[-2] >= window:
        cached = cached[..., cached.shape[-2] - window + 1 :, :]
    return torch.cat([cached, new], dim=-2)


def append_to_cache__no_window(cached, new, window=None):
    """The window is not used."""
    return torch.cat([cached, new], dim=-2)


def append_to_cache__window_minus_one(cached, new, window=None):
    """Keeps window - 1 rows, as if one place had to stay free; at a window of 1, none."""
    rows = torch.cat([cached, new], dim=-2)
    return rows if window is None else rows[..., max(0, rows.shape[-2] - window + 1) :, :]


def append_to_cache__columns(cached, new, window=None):
    """The window cuts the numbers of each vector."""
    rows = torch.cat([cached, new], dim=-2)
    return rows if window is None else rows[..., -window:]


def append_to_cache__in_place(cached, new, window=None):
    """The old cache itself grows, so another text that uses it grows, too."""
    rows = torch.cat([cached, new], dim=-2)
    cached.data = rows if window is None else rows[..., -window:, :]
    return cached


def append_to_cache__last_new_row(cached, new, window=None):
    """Of several new rows only the last one is appended."""
    rows = torch.cat([cached, new[..., -1:, :]], dim=-2)
    return rows if window is None else rows[..., -window:, :]


def append_to_cache__always_float32(cached, new, window=None):
    """The result is float32, whatever the inputs are."""
    rows = torch.cat([cached.float(), new.float()], dim=-2)
    return rows if window is None else rows[..., -window:, :]


def append_to_cache__detached(cached, new, window=None):
    """No gradient reaches the old rows."""
    rows = torch.cat([cached.detach(), new], dim=-2)
    return rows if window is None else rows[..., -window:, :]


def append_to_cache__negative_start(cached, new, window=None):
    """The start of the slice is negative where there are fewer tokens than the window, so rows are lost."""
    rows = torch.cat([cached, new], dim=-2)
    if window is None:
        return rows
    start = rows.shape[-2] - window
    return rows[..., start:, :]


def append_to_cache__new_itself(cached, new, window=None):
    """With an empty cache the new tensor itself comes back, or a view of it."""
    rows = torch.cat([cached, new], dim=-2) if cached.shape[-2] > 0 else new
    return rows if window is None else rows[..., -window:, :]


def append_to_cache__view_of_new(cached, new, window=None):
    """Where all old tokens leave, the result is a view of the new ones."""
    if window is not None and window <= new.shape[-2]:
        return new[..., new.shape[-2] - window :, :]
    rows = torch.cat([cached, new], dim=-2)
    return rows if window is None else rows[..., -window:, :]


def append_to_cache__room_before(cached, new, window=None):
    """The old cache is cut to what is left of the window, which may be 0 or less: then -0: keeps all."""
    if window is not None:
        left = window - new.shape[-2]
        cached = cached[..., -left:, :]
    return torch.cat([cached, new], dim=-2)


# ---- decode_with_cache


def decode_with_cache__from_zero(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Positions begin at 0 in each call."""
    positions = torch.arange(keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, positions), k, v, is_causal=True), k, v


def decode_with_cache__one_too_far(queries, keys, values, cached_keys, cached_values, attend=attend):
    """The first new token gets the number of cached tokens plus one."""
    n = cached_keys.shape[-2] + 1
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, positions), k, v, is_causal=True), k, v


def decode_with_cache__lesson_09(queries, keys, values, cached_keys, cached_values, attend=attend):
    """`attend_rotary` turns all keys, also those that were turned before; the cache gets keys without positions."""
    k, v = append_to_cache(cached_keys, keys), append_to_cache(cached_values, values)
    return attend_rotary(queries, k, v, is_causal=True, attend=attend), k, v


def decode_with_cache__unturned_kept(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Attends with turned keys, and keeps the others."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    outputs = attend(apply_rotary(queries, positions), k, v, is_causal=True)
    return outputs, append_to_cache(cached_keys, keys), v


def decode_with_cache__query_at_zero(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Only the keys go on behind the cache; the queries start at 0."""
    places = torch.arange(keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, places + cached_keys.shape[-2]))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, places), k, v, is_causal=True), k, v


def decode_with_cache__not_causal(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Several new tokens see each other's future."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, positions), k, v), k, v


def decode_with_cache__pytorch_is_causal(queries, keys, values, cached_keys, cached_values, attend=attend):
    """PyTorch's `is_causal` is aligned to the first key, and the given `attend` is not used."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    return F.scaled_dot_product_attention(apply_rotary(queries, positions), k, v, is_causal=True), k, v


def decode_with_cache__old_cache(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Returns the cache as it was."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, positions), k, v, is_causal=True), cached_keys, cached_values


def decode_with_cache__new_only(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Returns the new keys and values without the old ones."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    keys = apply_rotary(keys, positions)
    k, v = append_to_cache(cached_keys, keys), append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, positions), k, v, is_causal=True), keys, values


def decode_with_cache__no_positions(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Nothing is turned."""
    k, v = append_to_cache(cached_keys, keys), append_to_cache(cached_values, values)
    return attend(queries, k, v, is_causal=True), k, v


def decode_with_cache__not_itself(queries, keys, values, cached_keys, cached_values, attend=attend):
    """The new tokens see the cached ones only."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    outputs = attend(apply_rotary(queries, positions), cached_keys, cached_values)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    return outputs, k, append_to_cache(cached_values, values)


def decode_with_cache__own_attention(queries, keys, values, cached_keys, cached_values, attend=attend):
    """Right but for the last argument, which is not used."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    mask = torch.arange(k.shape[-2], device=k.device) <= positions[:, None]
    return F.scaled_dot_product_attention(apply_rotary(queries, positions), k, v, mask), k, v


def decode_with_cache__two_results(queries, keys, values, cached_keys, cached_values, attend=attend):
    """The two caches are returned as one tuple inside the result."""
    n = cached_keys.shape[-2]
    positions = torch.arange(n, n + keys.shape[-2], device=keys.device)
    k = append_to_cache(cached_keys, apply_rotary(keys, positions))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, positions), k, v, is_causal=True), (k, v)


def decode_with_cache__turned_when_read(queries, keys, values, cached_keys, cached_values, attend=attend):
    """The cache holds keys without positions, and all of them are turned when they are read."""
    k, v = torch.cat([cached_keys, keys], dim=-2), torch.cat([cached_values, values], dim=-2)
    places = torch.arange(k.shape[-2], device=k.device)
    q = apply_rotary(queries, places[-queries.shape[-2] :])
    return attend(q, apply_rotary(k, places), v, is_causal=True), k, v


def decode_with_cache__one_position(queries, keys, values, cached_keys, cached_values, attend=attend):
    """All new tokens stand at the same position, the number of cached tokens."""
    position = torch.zeros(keys.shape[-2], device=keys.device) + cached_keys.shape[-2]
    k = append_to_cache(cached_keys, apply_rotary(keys, position))
    v = append_to_cache(cached_values, values)
    return attend(apply_rotary(queries, position), k, v, is_causal=True), k, v


# ---- kv_cache_bytes


def kv_cache_bytes__keys_only(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Values are forgotten."""
    return batch * n_tokens * n_layers * n_kv_heads * (d_model // n_heads) * bytes_per_number


def kv_cache_bytes__all_heads(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """As many heads of keys as of queries."""
    return 2 * batch * n_tokens * n_layers * d_model * bytes_per_number


def kv_cache_bytes__one_layer(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Only one layer."""
    return 2 * batch * n_tokens * n_kv_heads * (d_model // n_heads) * bytes_per_number


def kv_cache_bytes__full_width(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Each head of keys has d_model numbers."""
    return 2 * batch * n_tokens * n_layers * n_kv_heads * d_model * bytes_per_number


def kv_cache_bytes__float(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """The result is a float."""
    return 2 * batch * n_tokens * n_layers * n_kv_heads * (d_model / n_heads) * bytes_per_number


def kv_cache_bytes__one_text(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """The number of texts is not used."""
    return 2 * n_tokens * n_layers * n_kv_heads * (d_model // n_heads) * bytes_per_number


def kv_cache_bytes__numbers(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Numbers, not bytes."""
    return 2 * batch * n_tokens * n_layers * n_kv_heads * (d_model // n_heads)


def kv_cache_bytes__matrices(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Lesson 06's matrices of weights, which nobody keeps."""
    return batch * n_layers * n_heads * n_tokens**2 * bytes_per_number


def kv_cache_bytes__bits(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Times 8."""
    return 16 * batch * n_tokens * n_layers * n_kv_heads * (d_model // n_heads) * bytes_per_number


def kv_cache_bytes__queries_too(n_tokens, n_layers, d_model, n_heads, n_kv_heads, bytes_per_number, batch=1):
    """Queries are kept as well."""
    d_k = d_model // n_heads
    return batch * n_tokens * n_layers * (2 * n_kv_heads + n_heads) * d_k * bytes_per_number


# ---- linear_attention


def linear_attention__all_keys(queries, keys, values):
    """Without the causal mask."""
    products = feature_map(queries) @ feature_map(keys).mT
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__brackets_moved(queries, keys, values):
    """The short form for all keys: the future is included."""
    q, k = feature_map(queries), feature_map(keys)
    return q @ (k.mT @ values) / (q @ k.sum(dim=-2).unsqueeze(-1))


def linear_attention__not_divided(queries, keys, values):
    """Without the denominator."""
    return (feature_map(queries) @ feature_map(keys).mT).tril() @ values


def linear_attention__keys_not_mapped(queries, keys, values):
    """The feature map is used for the queries only."""
    products = (feature_map(queries) @ keys.mT).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__queries_not_mapped(queries, keys, values):
    """The feature map is used for the keys only."""
    products = (queries @ feature_map(keys).mT).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__softmax(queries, keys, values):
    """Lesson 05's attention."""
    return attend(queries, keys, values, is_causal=True)


def linear_attention__only_elu(queries, keys, values):
    """elu without the 1."""
    products = (F.elu(queries) @ F.elu(keys).mT).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__sum_of_all(queries, keys, values):
    """Numerator causal, denominator over all keys."""
    products = feature_map(queries) @ feature_map(keys).mT
    return products.tril() @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__exponential(queries, keys, values):
    """exp as the feature map."""
    products = (queries.exp() @ keys.exp().mT).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__not_itself(queries, keys, values):
    """A token does not see itself; the first one sees nothing."""
    products = (feature_map(queries) @ feature_map(keys).mT).tril(-1)
    return products @ values / products.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def linear_attention__mean(queries, keys, values):
    """Divided by the number of keys."""
    products = (feature_map(queries) @ feature_map(keys).mT).tril()
    n = torch.arange(1, keys.shape[-2] + 1, device=keys.device).to(values)
    return products @ values / n.unsqueeze(-1)


def linear_attention__squeezed(queries, keys, values):
    """`squeeze` without a dimension takes all sizes of 1 away."""
    products = (feature_map(queries) @ feature_map(keys).mT).tril()
    return (products @ values / products.sum(dim=-1, keepdim=True)).squeeze()


def linear_attention__mask_on_the_cpu(queries, keys, values):
    """The mask is made on the CPU, wherever the inputs are."""
    n = queries.shape[-2]
    products = (feature_map(queries) @ feature_map(keys).mT) * torch.ones(n, n).tril().to(values.dtype)
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__products_mapped(queries, keys, values):
    """The feature map of the products, instead of queries and keys."""
    products = feature_map(queries @ keys.mT).tril()
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__minus_infinity(queries, keys, values):
    """Later keys are hidden as before a softmax."""
    n = queries.shape[-2]
    hidden = torch.ones(n, n, dtype=torch.bool, device=keys.device).triu(1)
    products = (feature_map(queries) @ feature_map(keys).mT).masked_fill(hidden, float("-inf"))
    return (products @ values) / products.sum(dim=-1, keepdim=True)


def linear_attention__strictly_lower(queries, keys, values):
    """A token does not see itself: the first row is 0/0."""
    products = torch.tril(feature_map(queries) @ feature_map(keys).mT, -1)
    return products @ values / products.sum(dim=-1, keepdim=True)


def linear_attention__small_number(queries, keys, values):
    """A small number in the denominator."""
    products = (feature_map(queries) @ feature_map(keys).mT).tril()
    return products @ values / (products.sum(dim=-1, keepdim=True) + 1e-6)


def linear_attention__sums_not_divided(queries, keys, values):
    """Running sums, without a denominator."""
    states = (feature_map(keys).unsqueeze(-1) * values.unsqueeze(-2)).cumsum(dim=-3)
    return (feature_map(queries).unsqueeze(-2) @ states).squeeze(-2)


# ---- linear_attention_step


def linear_attention_step__read_first(query, key, value, state, total):
    """The output comes from the state before this token."""
    q, k = feature_map(query), feature_map(key)
    output = (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return output, state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k


def linear_attention_step__not_divided(query, key, value, state, total):
    """Without the denominator."""
    q, k = feature_map(query), feature_map(key)
    state = state + k.unsqueeze(-1) * value.unsqueeze(-2)
    return (q.unsqueeze(-2) @ state).squeeze(-2), state, total + k


def linear_attention_step__old_total(query, key, value, state, total):
    """Divided with the total before this token."""
    q, k = feature_map(query), feature_map(key)
    state = state + k.unsqueeze(-1) * value.unsqueeze(-2)
    output = (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return output, state, total + k


def linear_attention_step__in_place(query, key, value, state, total):
    """`+=` changes the state that the caller still has."""
    q, k = feature_map(query), feature_map(key)
    state += k.unsqueeze(-1) * value.unsqueeze(-2)
    total += k
    return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__query_not_mapped(query, key, value, state, total):
    """Only the key is mapped."""
    k = feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (query.unsqueeze(-2) @ state).squeeze(-2) / (query * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__key_not_mapped(query, key, value, state, total):
    """Only the query is mapped."""
    q = feature_map(query)
    state, total = state + key.unsqueeze(-1) * value.unsqueeze(-2), total + key
    return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__old_state_returned(query, key, value, state, total):
    """The output is right, and the old sums are returned."""
    q, k = feature_map(query), feature_map(key)
    new, together = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ new).squeeze(-2) / (q * together).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__total_sum(query, key, value, state, total):
    """Divided by the sum of `total`, without the query."""
    q, k = feature_map(query), feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ state).squeeze(-2) / total.sum(dim=-1, keepdim=True), state, total


def linear_attention_step__total_of_raw_keys(query, key, value, state, total):
    """The total sums keys without the map."""
    q, k = feature_map(query), feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + key
    return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__no_sum(query, key, value, state, total):
    """The state holds the last token only."""
    q, k = feature_map(query), feature_map(key)
    state, total = k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__two_results(query, key, value, state, total):
    """The total is not returned."""
    q, k = feature_map(query), feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True), state


def linear_attention_step__squeezed(query, key, value, state, total):
    """`squeeze` without a dimension takes all sizes of 1 away."""
    q, k = feature_map(query), feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ state).squeeze() / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__total_after(query, key, value, state, total):
    """The output is divided before the total grows; at the first token by 0."""
    q, k = feature_map(query), feature_map(key)
    state = state + k.unsqueeze(-1) * value.unsqueeze(-2)
    output = (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(-1, keepdim=True)
    total = total + k
    return output, state, total


def linear_attention_step__turned_product(query, key, value, state, total):
    """The outer product is (d_v, d_k)."""
    q, k = feature_map(query), feature_map(key)
    state, total = state + value.unsqueeze(-1) * k.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ state).squeeze(-2) / (q * total).sum(dim=-1, keepdim=True), state, total


def linear_attention_step__small_number(query, key, value, state, total):
    """A small number in the denominator."""
    q, k = feature_map(query), feature_map(key)
    state, total = state + k.unsqueeze(-1) * value.unsqueeze(-2), total + k
    return (q.unsqueeze(-2) @ state).squeeze(-2) / ((q * total).sum(dim=-1, keepdim=True) + 1e-6), state, total
