"""Right answers to lesson 15's exercises, in many forms."""

from course_utils.lessons.flash_triton import add_kernel, flash_dq_inner, flash_forward_inner, softmax_kernel
from tests.answers.kernels import rewritten

# ---- add_kernel

PLACES = "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
ADD = "tl.store(out_ptr + places, x + y, mask=inside)"

add_kernel__plain = rewritten(add_kernel, {})
add_kernel__named_steps = rewritten(
    add_kernel, {PLACES: "tl.program_id(axis=0) * BLOCK\n    places += tl.arange(0, BLOCK)"}
)
add_kernel__zeros_behind_the_end = rewritten(add_kernel, {"x_ptr + places, mask=inside": "x_ptr + places, inside, 0.0"})
add_kernel__the_other_way_round = rewritten(add_kernel, {"x + y": "y + x"})
add_kernel__what_is_left = rewritten(add_kernel, {"places < n": "tl.arange(0, BLOCK) < n - tl.program_id(0) * BLOCK"})
add_kernel__pointers_first = rewritten(
    add_kernel,
    {ADD: "out_ptr += tl.program_id(0) * BLOCK\n    tl.store(out_ptr + tl.arange(0, BLOCK), x + y, mask=inside)"},
)
add_kernel__sixty_four_bits = rewritten(
    add_kernel, {"tl.program_id(0) * BLOCK": "tl.program_id(0).to(tl.int64) * BLOCK"}
)
add_kernel__summed_in_float32 = rewritten(add_kernel, {"x + y": "(x.to(tl.float32) + y.to(tl.float32)).to(x.dtype)"})
add_kernel__two_halves = rewritten(
    add_kernel,
    {
        PLACES: "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 2)",
        ADD: f"{ADD}\n    places += BLOCK // 2\n    inside = places < n\n    x = tl.load(x_ptr + places, mask=inside)\n"
        f"    y = tl.load(y_ptr + places, mask=inside)\n    {ADD}",
    },
)
add_kernel__with_a_helper = rewritten(
    add_kernel,
    {"x = tl.load(x_ptr + places, mask=inside)": "x = taken(x_ptr, places, n)"},
    before="@triton.jit\ndef taken(ptr, places, n):\n    return tl.load(ptr + places, mask=places < n)\n\n\n",
)

# ---- softmax_kernel

ROW = "tl.cast(tl.program_id(0), tl.int64)"
LOAD = 'tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf"))'
POWERS = "tl.exp(x - tl.max(x, axis=0))"

softmax_kernel__plain = rewritten(softmax_kernel, {})
softmax_kernel__to = rewritten(softmax_kernel, {ROW: "tl.program_id(0).to(tl.int64)"})
softmax_kernel__steps = rewritten(
    softmax_kernel, {POWERS: "x - tl.max(x, axis=0)\n    powers = tl.exp(powers)\n    total = tl.sum(powers, axis=0)"}
)
softmax_kernel__powers_of_two = rewritten(
    softmax_kernel, {POWERS: "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)"}
)
softmax_kernel__hidden_afterwards = rewritten(
    softmax_kernel,
    {
        LOAD: "tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0)",
        "x.to(tl.float32)": 'tl.where(inside, x.to(tl.float32), -float("inf"))',
    },
)
softmax_kernel__powers_hidden = rewritten(softmax_kernel, {POWERS: f"tl.where(inside, {POWERS}, 0.0)"})
softmax_kernel__times_one_over = rewritten(
    softmax_kernel, {"powers / tl.sum(powers)": "powers * (1.0 / tl.sum(powers, axis=0))"}
)
softmax_kernel__stride_in_64_bits = rewritten(
    softmax_kernel,
    {
        ROW: "tl.program_id(0)",
        "row * x_stride": "row * tl.cast(x_stride, tl.int64)",
        "row * out_stride": "row * tl.cast(out_stride, tl.int64)",
    },
)
softmax_kernel__pointer_of_the_row = rewritten(
    softmax_kernel, {LOAD: 'tl.load((x_ptr + row * x_stride) + columns, mask=columns < n, other=float("-inf"))'}
)
softmax_kernel__log_of_the_sum = rewritten(
    softmax_kernel, {"powers / tl.sum(powers)": "tl.exp(x - tl.max(x, axis=0) - tl.log(tl.sum(powers, axis=0)))"}
)

# ---- flash_forward_inner

HIDE = 'scores = tl.where(visible, scores, -float("inf"))'
VISIBLE = "start + tl.arange(0, BLOCK_K)[None, :] < n_visible[:, None]"
SHIFT = 'tl.where(new_max == -float("inf"), 0.0, new_max)'
LOAD_KEYS = "keys = load_rows(k, start, n_keys, BLOCK_K, D, MASKED)"
BY_HAND = """\
ptr, row_stride, column_stride = k
        places = start + tl.arange(0, BLOCK_K)[:, None]
        offsets = places.to(tl.int64) * row_stride + tl.arange(0, D)[None, :] * column_stride
        keys = tl.load(ptr + offsets, mask=places < n_keys, other=0.0)"""
TRANSPOSED = """\
ptr, row_stride, column_stride = k
        places = start + tl.arange(0, BLOCK_K)[None, :]
        offsets = places.to(tl.int64) * row_stride + tl.arange(0, D)[:, None] * column_stride
        keys = tl.trans(tl.load(ptr + offsets, mask=places < n_keys, other=0.0))"""
LOOP = "for start in range(first, last, BLOCK_K):"

flash_forward_inner__plain = rewritten(flash_forward_inner, {})
flash_forward_inner__loads_by_hand = rewritten(flash_forward_inner, {LOAD_KEYS: BY_HAND})
flash_forward_inner__loads_transposed = rewritten(flash_forward_inner, {LOAD_KEYS: TRANSPOSED})
flash_forward_inner__tails_always_masked = rewritten(
    flash_forward_inner, {LOAD_KEYS: LOAD_KEYS.replace("MASKED", "True")}
)
flash_forward_inner__triton_range = rewritten(flash_forward_inner, {"in range(": "in tl.range("})
flash_forward_inner__scale_on_the_queries = rewritten(
    flash_forward_inner, {"dot(queries, tl.trans(keys)) * log2_scale": "log2_scale * dot(queries, tl.trans(keys))"}
)
flash_forward_inner__added_to_the_mask = rewritten(
    flash_forward_inner, {HIDE: 'scores += tl.where(visible, 0.0, -float("inf"))'}
)
flash_forward_inner__weights_hidden_too = rewritten(
    flash_forward_inner,
    {
        "weights = tl.exp2(scores - shift[:, None])": "weights = tl.exp2(scores - shift[:, None])\n"
        '        weights = tl.where(scores == -float("inf"), 0.0, weights)'
    },
)
flash_forward_inner__a_finite_shift = rewritten(flash_forward_inner, {SHIFT: "tl.maximum(new_max, -1e30)"})
flash_forward_inner__columns_named = rewritten(
    flash_forward_inner,
    {
        f"visible = {VISIBLE}": "columns = start + tl.arange(0, BLOCK_K)\n"
        "            visible = n_visible[:, None] > columns[None, :]"
    },
)
flash_forward_inner__product_adds = rewritten(
    flash_forward_inner,
    {
        "acc += dot(weights.to(values.dtype), values)": "acc = tl.dot(\n"
        '            weights.to(values.dtype), values, acc, input_precision="ieee"\n        )'
    },
)
flash_forward_inner__a_while_loop = rewritten(
    flash_forward_inner,
    {
        LOOP: "start = first\n    while start < last:",
        "row_max = new_max": "row_max = new_max\n        start += BLOCK_K",
    },
)

# ---- flash_dq_inner

WEIGHTS = "weights = tl.exp2(scores - log_sum_exp[:, None])"
SCORES = "weights * (grad_weights - delta[:, None])"

flash_dq_inner__plain = rewritten(flash_dq_inner, {})
flash_dq_inner__loads_by_hand = rewritten(flash_dq_inner, {LOAD_KEYS: BY_HAND})
flash_dq_inner__loads_transposed = rewritten(flash_dq_inner, {LOAD_KEYS: TRANSPOSED})
flash_dq_inner__tails_always_masked = rewritten(flash_dq_inner, {LOAD_KEYS: LOAD_KEYS.replace("MASKED", "True")})
flash_dq_inner__triton_range = rewritten(flash_dq_inner, {"in range(": "in tl.range("})
flash_dq_inner__weights_hidden = rewritten(
    flash_dq_inner,
    {HIDE: "pass", WEIGHTS: f"{WEIGHTS}\n        if MASKED:\n            weights = tl.where({VISIBLE}, weights, 0.0)"},
)
flash_dq_inner__added_to_the_mask = rewritten(flash_dq_inner, {HIDE: 'scores += tl.where(visible, 0.0, -float("inf"))'})
flash_dq_inner__delta_apart = rewritten(flash_dq_inner, {SCORES: "weights * grad_weights - weights * delta[:, None]"})
flash_dq_inner__product_adds = rewritten(
    flash_dq_inner,
    {
        "grad_queries += dot(grad_scores.to(keys.dtype), keys)": "grad_queries = tl.dot(\n"
        '            grad_scores.to(keys.dtype), keys, grad_queries, input_precision="ieee"\n        )'
    },
)
flash_dq_inner__a_while_loop = rewritten(
    flash_dq_inner,
    {
        LOOP: "start = first\n    while start < last:",
        "        grad_queries += dot(grad_scores.to(keys.dtype), keys)": "        start += BLOCK_K\n"
        "        grad_queries += dot(grad_scores.to(keys.dtype), keys)",
    },
)
